"""Evaluations of several labels of the same samples, each by itself.

Legend: `n` samples, `K` labels.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.evaluation.click_evaluation import ClickEvaluation, Evaluation
from bagpipe_hpc.evaluation.peers import Peers


class LabelEvaluations:
    """Takes in one trainer's samples, and gives the measures of each label over those of all trainers.

    Args:
        labels: their names.
        is_exact: as for `ClickEvaluation`.
        by_group: likewise.
    """

    def __init__(self, labels: Sequence[str], *, is_exact: bool = True, by_group: bool = False) -> None:
        self._parts = {name: ClickEvaluation(is_exact=is_exact, by_group=by_group) for name in labels}

    def add(
        self,
        labels: NDArray[np.float32],
        logits: NDArray[np.float32],
        groups: NDArray[np.integer] | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Take in samples.

        Args:
            labels: float32 `[n]` of 0 and 1; with several labels `[n, K]`.
            logits: of the same shape.
            groups: as for `ClickEvaluation.add`, as are `weights`.
            weights: of the samples.

        Raises:
            ValueError: as by `ClickEvaluation.add`, or there are other labels than were named.
        """
        several = len(self._parts) > 1
        columns, predicted = (labels.T, logits.T) if several else (labels[None], logits[None])
        for part, own, logit in zip(self._parts.values(), columns, predicted, strict=True):
            part.add(own, logit, groups, weights)

    def finish(self, peers: Peers) -> dict[str, Evaluation]:
        """The measures of each label by its name, in their order, the same on all peers. Collective over: the peers."""
        return {name: part.finish(peers) for name, part in self._parts.items()}
