"""Quality on the test rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.models.click_metrics import log_loss, roc_auc


@dataclass(frozen=True)
class Evaluation:
    """Quality of predictions.

    Attributes:
        samples: number of test rows.
        auc: area under the ROC curve, exact.
        log_loss: mean binary cross-entropy.
    """

    samples: int
    auc: float
    log_loss: float


def evaluate(labels: list[NDArray[np.float32]], logits: list[NDArray[np.float32]]) -> Evaluation:
    """Evaluate predictions that were collected in pieces, in any order; all of them are held in memory."""
    all_labels, all_logits = np.concatenate(labels), np.concatenate(logits)
    return Evaluation(len(all_labels), roc_auc(all_labels, all_logits), log_loss(all_labels, all_logits))
