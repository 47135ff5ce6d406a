"""Pairs of a click and another sample, counted in integers: what areas under ROC curves are shares of.

A sample is an *entry*, one uint64: its group, its logit in an order-preserving code, whether it was a click. Samples of
the same group and logit are counted together under a *key*, which is the entry without its last bit.

Legend: `n` samples, `K` keys, `G` groups.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SCORE_BITS = 32
MOST_GROUPS = 1 << 31
"""Number of groups that an entry has room for, beside the logit and the label."""
_MOST_SAMPLES = 1 << 32
"""From so many on, twice the number of pairs may no longer fit into 64 bits."""


def entries(
    labels: NDArray[np.float32], logits: NDArray[np.float32], groups: NDArray[np.integer] | None = None
) -> NDArray[np.uint64]:
    """The entries of samples, uint64 `[n]`: sorted, they are in the order of groups, then of logits.

    Args:
        labels: float32 `[n]` of 0 and 1.
        logits: float32 `[n]`, no NaN. 0 and -0 are the same.
        groups: of each sample, integers `[n]` from 0 to below `MOST_GROUPS`; all 0 where it is not given.
    """
    bits = (logits + np.float32(0)).view(np.uint32)  # -0 + 0 is 0
    ordered = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    found: NDArray[np.uint64] = ordered << np.uint64(1) | (labels == 1)
    if groups is not None:
        found |= groups.astype(np.uint64) << np.uint64(SCORE_BITS + 1)
    return found


def without_groups(found: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same samples in one group; a copy."""
    one: NDArray[np.uint64] = found & np.uint64((1 << (SCORE_BITS + 1)) - 1)
    return one


@dataclass(frozen=True)
class PairCounts:
    """How many samples have each key.

    Attributes:
        keys: uint64 `[K]`, ascending, each once.
        clicks: samples with a click, int64 `[K]`.
        others: samples without, int64 `[K]`.
    """

    keys: NDArray[np.uint64]
    clicks: NDArray[np.int64]
    others: NDArray[np.int64]

    @classmethod
    def of(cls, found: NDArray[np.uint64]) -> "PairCounts":
        """Count entries, uint64 `[n]`, which are sorted in place."""
        found.sort()
        keys = found >> np.uint64(1)
        starts = _starts(keys)
        clicks = np.add.reduceat((found & np.uint64(1)).astype(np.int64), starts) if starts.size else _NONE
        return cls(keys[starts], clicks, np.diff(starts, append=keys.size) - clicks)

    @classmethod
    def merged(cls, parts: "Sequence[PairCounts]") -> "PairCounts":
        """The counts of all parts."""
        keys = np.concatenate([part.keys for part in parts])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = _starts(keys)
        if not starts.size:
            return cls(keys, _NONE, _NONE)
        clicks, others = (np.concatenate(columns)[order] for columns in zip(*map(_columns, parts), strict=True))
        return cls(keys[starts], np.add.reduceat(clicks, starts), np.add.reduceat(others, starts))

    def between(self, first: int, last: int) -> "PairCounts":
        """The keys at places `first` up to `last`, with their counts."""
        return PairCounts(self.keys[first:last], self.clicks[first:last], self.others[first:last])


class GroupPairs(NamedTuple):
    """The pairs of a group, or of those of its samples whose logits are in some range.

    Attributes:
        group: its number.
        clicks: samples with a click.
        others: samples without.
        twice_right: pairs in which the click has the higher logit, counted twice, plus pairs of one key, counted once.
        tied: pairs of one key.
    """

    group: int
    clicks: int
    others: int
    twice_right: int
    tied: int

    def then(self, above: "GroupPairs") -> "GroupPairs":
        """The pairs of these samples and of others of the same group, whose logits are all higher."""
        across = 2 * above.clicks * self.others
        return GroupPairs(
            self.group,
            self.clicks + above.clicks,
            self.others + above.others,
            self.twice_right + above.twice_right + across,
            self.tied + above.tied,
        )

    @property
    def has_pairs(self) -> bool:
        """Whether there is a click and another sample, without which the area has no meaning."""
        return self.clicks > 0 and self.others > 0

    @property
    def auc(self) -> float:
        """Area under the ROC curve: the share of pairs that the logits order rightly, ties counting half; rounded once.

        Mann and Whitney's U over the number of pairs. Where a key stands for a range of logits, the area is within
        `auc_error` of this.
        """
        return self.twice_right / (2 * self.clicks * self.others)

    @property
    def auc_error(self) -> float:
        """Half the share of pairs of one key: the area may be off by so much, as their logits are not told apart."""
        return self.tied / (2 * self.clicks * self.others)


def pairs_by_group(counts: PairCounts) -> list[NDArray[Any]]:
    """The fields of `GroupPairs` for each group, ascending, `[G]` each: int64, or `int` for very many samples."""
    groups = (counts.keys >> np.uint64(SCORE_BITS)).astype(np.int64)
    starts = _starts(groups)
    if not starts.size:
        return [_NONE] * len(GroupPairs._fields)
    clicks: NDArray[Any] = counts.clicks
    others: NDArray[Any] = counts.others
    if int(clicks.sum()) + int(others.sum()) >= _MOST_SAMPLES:  # in bins, so that keys are few
        clicks, others = clicks.astype(object), others.astype(object)
    below = np.cumsum(others) - others
    below -= np.repeat(below[starts], np.diff(starts, append=groups.size))
    tied = clicks * others
    twice_right = 2 * clicks * below + tied
    sums = (np.add.reduceat(column, starts) for column in (clicks, others, twice_right, tied))
    return [groups[starts], *sums]


def joined(pieces: Iterable[GroupPairs]) -> list[GroupPairs]:
    """Pieces of groups in the order of their keys, with neighbours of the same group put together."""
    done: list[GroupPairs] = []
    for piece in pieces:
        if done and done[-1].group == piece.group:
            done[-1] = done[-1].then(piece)
        else:
            done.append(piece)
    return done


_NONE = np.empty(0, dtype=np.int64)


def _starts(values: NDArray[np.generic]) -> NDArray[np.int64]:
    """Where a run of equal values begins, in sorted ones."""
    if not values.size:
        return _NONE
    return np.concatenate(([0], np.flatnonzero(values[1:] != values[:-1]) + 1))


def _columns(counts: PairCounts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return counts.clicks, counts.others
