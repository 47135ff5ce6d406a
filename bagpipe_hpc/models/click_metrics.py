"""Exact measures of click predictions, in float64 on one host.

Shapes: B samples.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


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


def roc_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve: the share of (click, no click) pairs that the scores order rightly, ties counting half.

    Pairs are counted in 64-bit integers (Mann and Whitney's U), so that the result is the exact share, rounded once. It
    depends on the order of the scores only: logits and probabilities give the same. O(B log B) time.

    Args:
        labels: `[B]` of 0 and 1.
        scores: `[B]` real numbers; higher means a click is likelier.

    Returns:
        A number from 0 to 1; NaN where it has no meaning: all labels are the same, or a score is NaN. A run whose test
        rows hold one class only still ends with a report.

    Raises:
        ValueError: the shapes differ, or a label is neither 0 nor 1.
    """
    clicked, values = _checked(labels, scores)
    clicks = int(np.count_nonzero(clicked))
    others = len(clicked) - clicks
    if clicks == 0 or others == 0 or np.isnan(values).any():
        return math.nan
    order = np.argsort(values)
    values = values[order]
    starts = np.concatenate(([0], np.flatnonzero(values[1:] != values[:-1]) + 1))
    tied = np.diff(starts, append=len(values))
    tied_clicks = np.add.reduceat(clicked[order], starts, dtype=np.int64)
    tied_others = tied - tied_clicks
    others_below = np.cumsum(tied_others) - tied_others
    twice_right_pairs = int(np.dot(tied_clicks, 2 * others_below + tied_others))
    return twice_right_pairs / (2 * clicks * others)


def log_loss(labels: ArrayLike, logits: ArrayLike) -> float:
    """Mean binary cross-entropy in nats, computed from logits so that sure predictions lose no digits.

    Args:
        labels: `[B]` of 0 and 1.
        logits: `[B]` log-odds of a click; infinite ones are allowed.

    Returns:
        A number from 0 to infinity; NaN where there are no samples or a logit is NaN.

    Raises:
        ValueError: the shapes differ, or a label is neither 0 nor 1.
    """
    clicked, values = _checked(labels, logits)
    if len(values) == 0:
        return math.nan
    # -log sigmoid(z) = log(1 + exp(-z)) for a click, and with z for no click.
    with np.errstate(invalid="ignore"):  # a NaN is an answer, not a warning
        return float(np.logaddexp(0.0, np.where(clicked, -values, values)).mean())


def _checked(labels: ArrayLike, scores: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    flags, values = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    if flags.ndim != 1 or flags.shape != values.shape:
        raise ValueError(f"labels {flags.shape} and scores {values.shape}: must be two lists of the same length")
    clicked = flags == 1
    if not np.logical_or(clicked, flags == 0).all():
        raise ValueError("labels must be 0 or 1")
    return clicked, values
