"""The rows of one batch, as planners see them, and what is decided on them.

Legend: `V` look-ups of a batch, `U` unique rows of it.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

SEVERAL = -1
"""User of a row that more than one trainer uses."""

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@dataclass
class LoadedBatch:
    """A batch in the window.

    Attributes:
        rows: global rows of all look-ups, `[V]`: one trainer's slice after the other, in each sample after sample.
        starts: first look-up of each trainer's slice and the end of the last, `[trainers + 1]`.
        samples: number of samples.
        unique: each row once, `[U]`: one table after the other, in each in the order of their first look-up, one
            feature after the other.
        user: the only trainer that uses the row, or `SEVERAL`, `[U]`.
    """

    rows: NDArray[np.integer]
    starts: list[int]
    samples: int
    unique: NDArray[np.integer]
    user: Int32s

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.rows.nbytes + self.unique.nbytes + self.user.nbytes


@dataclass(frozen=True)
class RowChoice:
    """What a rule says of each unique row of a batch; all arrays bool `[U]`.

    Attributes:
        dead: it leaves the caches after the batch, and is written back.
        private: one trainer alone updates it, without a sum over the trainers, and writes it back: it is dead, and no
            other trainer uses it. If it is fetched for this batch, that trainer alone fetches it.
        now: of the others, those whose sums over the trainers are needed before the next batch starts; the sums of the
            rest run behind that batch, and reach the caches before the one after it. Of private rows it says nothing.
    """

    dead: Bools
    private: Bools
    now: Bools


@dataclass(frozen=True)
class Decision:
    """What happens to each unique row of a batch; all arrays `[U]`.

    Attributes:
        slots: where the row lives while the batch is computed.
        fetched: absent before, so fetched for this batch.
        private: updated and written back by its only user, without a reduction.
        now: the next batch uses it; neither private nor now means later.
    """

    slots: Int32s
    fetched: Bools
    private: Bools
    now: Bools

    @property
    def later(self) -> Bools:
        """Shared rows whose reduction may hide behind the next batch."""
        return ~(self.now | self.private)


@dataclass
class RetiredRows:
    """Rows that leave the caches together, in parts of a batch each: global rows, their slots, who writes them back."""

    rows: list[Int64s] = field(default_factory=list)
    slots: list[Int32s] = field(default_factory=list)
    writers: list[Int32s] = field(default_factory=list)

    def extend(self, other: "RetiredRows") -> None:
        """Add the parts of another."""
        self.rows += other.rows
        self.slots += other.slots
        self.writers += other.writers

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return sum(part.nbytes for parts in (self.rows, self.slots, self.writers) for part in parts)


RetiredByGroup = dict[int, RetiredRows]
"""Rows that leave, by the number of the group with which they do."""


def distinct(values: NDArray[np.int64]) -> Int64s:
    """Each value once, ascending. `np.unique` hashes integers, which takes 30 times as long for those of a batch."""
    ordered = np.sort(values)
    is_first = np.ones(ordered.size, dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    found: Int64s = ordered[is_first]
    return found


def extend_groups(groups: RetiredByGroup, others: RetiredByGroup) -> None:
    """Add the rows of others to those of the same groups."""
    for group, retired in others.items():
        groups.setdefault(group, RetiredRows()).extend(retired)
