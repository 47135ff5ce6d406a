"""Measures of click predictions that several trainers share: sums, areas under ROC curves, and what follows from them.

Each trainer keeps its own samples, and the measures are the same on all of them, digit for digit, whatever their number
and whoever has which samples: pairs are counted in integers, and sums are exact until they are rounded once.

Legend: `n` samples of a call.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagpipe_hpc.evaluation.exact_sum import ExactSum
from bagpipe_hpc.evaluation.pairs import (
    SCORE_BITS,
    GroupPairs,
    PairCounts,
    entries,
    joined,
    pairs_by_group,
    without_groups,
)
from bagpipe_hpc.evaluation.peers import Alone, Peers, spread

BIN_BITS = 20
"""Leading bits of a logit's ordered code, which number its bin: sign, exponent, and 11 bits behind the point."""
_DROPPED_BITS = SCORE_BITS - BIN_BITS
_Groups = NDArray[np.integer] | None
_Weights = NDArray[np.float32] | None
_BYTES_ALONE, _BYTES_ALONE_BY_GROUP, _BYTES_SHARED = 64, 112, 160
"""Bytes a sample takes at the end of an evaluation, without and with other peers: counts of keys, with what sorts them;
those of groups, of which each may have a single sample; and what peers send each other."""
_KEPT_APART = 1 << 16
"""Samples that are collected before they are counted: whole arrays take less time than the slices of batches."""


@dataclass(frozen=True)
class Evaluation:
    """Quality of predictions of one label. A number that has no meaning is NaN.

    Where samples have weights, means are weighted ones; areas count samples.

    Attributes:
        samples: number of test rows.
        auc: area under the ROC curve. NaN where all labels are alike.
        auc_error: how far the exact area may be from `auc`; 0 where that is exact.
        log_loss: mean binary cross-entropy, in nats.
        normalised_entropy: `log_loss` over the entropy of the mean label (He et al., ADKDD 2014): below 1 where the
            predictions know more than how many rows are clicks. NaN where all labels are alike.
        calibration: mean prediction over mean label; NaN where no label is 1.
        group_auc: mean area of the groups that have both labels, weighted by their test rows (Zhou et al., KDD 2018);
            NaN where no group has. None where it was not asked for.
    """

    samples: int
    auc: float
    auc_error: float
    log_loss: float
    normalised_entropy: float
    calibration: float
    group_auc: float | None = None


class ClickEvaluation:
    """Takes in one trainer's samples, and gives the measures over those of all trainers.

    Args:
        is_exact: keep every sample's logit, 8 bytes each, for an exact area; else count logits in 2**20 bins, 16 MiB.
            The same on all trainers.
        by_group: compute the area by group, too; only where the area is exact.

    Raises:
        ValueError: areas by group are asked for, and are not exact.
    """

    def __init__(self, *, is_exact: bool = True, by_group: bool = False) -> None:
        if by_group and not is_exact:
            raise ValueError("areas by group are exact or there are none")
        self._by_group = by_group
        self._bins = None if is_exact else np.zeros((2, 1 << BIN_BITS), dtype=np.int64)
        self._entries: list[NDArray[np.uint64]] = []
        self._waiting: list[tuple[NDArray[np.float32], NDArray[np.float32], _Groups, _Weights]] = []
        self._waiting_samples = 0
        self._samples = 0
        self._weight, self._clicked, self._loss, self._predicted = (ExactSum() for _ in range(4))

    def add(
        self,
        labels: NDArray[np.float32],
        logits: NDArray[np.float32],
        groups: NDArray[np.integer] | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Take in samples.

        Args:
            labels: float32 `[n]` of 0 and 1.
            logits: float32 `[n]`: log-odds of a click, finite.
            groups: group of each, integers `[n]` as for `entries`; where areas by group are wanted.
            weights: of each, float32 `[n]`, 0 or more; 1 where they are not given. Areas count samples without them.

        Raises:
            ValueError: the shapes differ, a label is neither 0 nor 1, or a number is not finite.
        """
        if labels.ndim != 1 or labels.shape != logits.shape or (groups is None) == self._by_group:
            raise ValueError(f"labels {labels.shape} and logits {logits.shape}: must be two lists of the same length")
        self._waiting.append((labels, logits, groups, weights))
        self._waiting_samples += labels.size
        if self._waiting_samples >= _KEPT_APART:
            self._take_in()

    def finish(self, peers: Peers) -> Evaluation:
        """The measures over the samples of all peers, the same on each; nothing can be added any more.

        Collective over: the peers.

        Raises:
            ValueError: as `add` does.
        """
        self._take_in()
        own = self._weight, self._clicked, self._loss, self._predicted
        all_samples, *sums = zip(*peers.all_of((self._samples, *own)), strict=True)
        samples = sum(all_samples)
        weight, clicked, loss, predicted = (ExactSum.of(parts) for parts in sums)
        auc, auc_error = self._area(peers)
        group_auc = self._area_by_group(peers) if self._by_group else None
        log_loss, entropy = loss.over(weight), _entropy(clicked, weight)
        return Evaluation(
            samples=samples,
            auc=auc,
            auc_error=auc_error,
            log_loss=log_loss,
            normalised_entropy=log_loss / entropy if entropy else math.nan,
            calibration=predicted.over(clicked),
            group_auc=group_auc,
        )

    def _take_in(self) -> None:
        """Count the samples that were collected."""
        if not self._waiting:
            return
        labels, logits, groups, weights = zip(*self._waiting, strict=True)
        self._waiting, self._waiting_samples = [], 0
        label, logit = np.concatenate(labels), np.concatenate(logits)
        is_click = label == 1
        if not (is_click | (label == 0)).all():
            raise ValueError("labels must be 0 or 1")
        if not np.isfinite(logit).all():
            raise ValueError("logits must be finite")
        self._samples += label.size
        self._add_up(is_click, losses(is_click, logit), predictions(logit), weights)
        found = entries(label, logit, np.concatenate(groups) if self._by_group else None)
        if self._bins is None:
            self._entries.append(found)
        else:
            np.add.at(self._bins, (is_click.astype(np.intp), found >> np.uint64(1 + _DROPPED_BITS)), 1)

    def _add_up(
        self,
        is_click: NDArray[np.bool_],
        loss: NDArray[np.float64],
        predicted: NDArray[np.float64],
        weights: Sequence[_Weights],
    ) -> None:
        """Add samples to the sums, each with its weight; their product is rounded to float64."""
        if weights[0] is None:
            self._weight = ExactSum.of([self._weight, ExactSum.of_count(is_click.size)])
            self._clicked = ExactSum.of([self._clicked, ExactSum.of_count(int(np.count_nonzero(is_click)))])
            self._loss.add(loss)
            self._predicted.add(predicted)
            return
        weight = np.concatenate([np.asarray(part) for part in weights]).astype(np.float64)
        self._weight.add(weight)
        self._clicked.add(weight[is_click])
        self._loss.add(weight * loss)
        self._predicted.add(weight * predicted)

    def _area(self, peers: Peers) -> tuple[float, float]:
        """The area under the ROC curve over all samples, and how far it may be off."""
        if self._bins is not None:
            (bins,) = np.nonzero(self._bins.any(axis=0))
            others, clicks = self._bins[:, bins]
            counts = PairCounts(bins.astype(np.uint64), clicks, others)
        else:
            self._entries = [np.concatenate(self._entries)] if self._entries else [np.empty(0, dtype=np.uint64)]
            counts = PairCounts.of(without_groups(self._entries[0]) if self._by_group else self._entries.pop())
        own = [GroupPairs(*map(int, fields)) for fields in zip(*pairs_by_group(spread(counts, peers)), strict=True)]
        whole = joined([piece for pieces in peers.all_of(own) for piece in pieces])
        if not whole or not whole[0].has_pairs:
            return math.nan, 0.0
        return whole[0].auc, whole[0].auc_error if self._bins is not None else 0.0

    def _area_by_group(self, peers: Peers) -> float:
        """The mean of the groups' areas, weighted by their samples.

        A peer's first and last group may go on at its neighbours, so these are put together by all.
        """
        groups = pairs_by_group(spread(PairCounts.of(self._entries.pop()), peers))
        count = groups[0].size
        edges = [GroupPairs(*(int(field[place]) for field in groups)) for place in sorted({0, count - 1}) if count]
        _, clicks, others, twice_right, _ = (field[1:-1] for field in groups)
        inner = _weighted(clicks, others, twice_right)
        all_edges, areas, weights = zip(*peers.all_of((edges, *inner)), strict=True)
        pieces = joined(edge for own in all_edges for edge in own)
        shared = np.asarray([(piece.clicks, piece.others, piece.twice_right) for piece in pieces], dtype=np.int64)
        area, weight = _weighted(*shared.reshape(-1, 3).T)
        weight += sum(weights)
        return ExactSum.of([area, *areas]).divided_by(weight) if weight else math.nan


def evaluation_bytes(samples: int, peers: int, *, is_exact: bool, by_group: bool = False) -> int:
    """Memory of one peer for an evaluation of so many samples, of which it has an even share."""
    own = -(-samples // peers)
    bins = 0 if is_exact else 2 * 8 << BIN_BITS
    counted = own if is_exact else min(own, 1 << BIN_BITS)
    alone = _BYTES_ALONE_BY_GROUP if by_group else _BYTES_ALONE
    return bins + counted * (alone if peers == 1 else _BYTES_SHARED)


def measure(labels: ArrayLike, logits: ArrayLike) -> Evaluation:
    """The exact measures of predictions that one process holds, `[n]` each, as `ClickEvaluation.add` takes them."""
    whole = ClickEvaluation()
    whole.add(np.asarray(labels, dtype=np.float32), np.asarray(logits, dtype=np.float32))
    return whole.finish(Alone())


def losses(is_click: NDArray[np.bool_], logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Binary cross-entropy of each sample, float64 `[n]`, computed so that confident predictions lose no digits.

    It is -log sigmoid(z) = log(1 + exp(-z)) for a click, and log(1 + exp(z)) for another sample.
    """
    wide = logits.astype(np.float64)
    return np.logaddexp(0.0, np.where(is_click, -wide, wide))


def predictions(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """The predicted probability of each sample, float64 `[n]`."""
    with np.errstate(over="ignore"):  # exp is infinite for what is as good as impossible
        return 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))


def _entropy(clicked: ExactSum, weight: ExactSum) -> float:
    """Entropy in nats of a label that is 1 for `clicked` of the whole `weight`; 0 where it is the same everywhere."""
    others = weight.less(clicked)
    if not (clicked and others):
        return 0.0
    return -sum(share * math.log(share) for share in (clicked.over(weight), others.over(weight)))


def _weighted(
    clicks: NDArray[np.int64], others: NDArray[np.int64], twice_right: NDArray[np.int64]
) -> tuple[ExactSum, int]:
    """The sum of area times samples over the groups that have both labels; and the number of their samples."""
    both = (clicks > 0) & (others > 0)
    clicks, others, twice_right = clicks[both], others[both], twice_right[both]
    samples, total = clicks + others, ExactSum()
    total.add((samples * (twice_right / (2 * clicks * others))).astype(np.float64, copy=False))
    return total, int(samples.sum())
