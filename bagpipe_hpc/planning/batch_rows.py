"""The rows of one batch, as planners see them, and what is decided about them.

Legend: `V` look-ups of a batch, `U` unique rows of it.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

SEVERAL = -1
"""Stands for the user of a row that more than one trainer uses."""

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

NO_ROWS: Int64s = np.empty(0, dtype=np.int64)
NO_SLOTS: Int32s = np.empty(0, dtype=np.int32)


@dataclass
class LoadedBatch:
    """A batch in the window.

    Attributes:
        rows: global rows of all look-ups, `[V]`: slice after slice of the trainers, within a slice sample after sample.
        starts: first look-up of each trainer's slice and the end of the last, `[trainers + 1]`.
        samples: number of samples.
        unique: each row once, `[U]`: table after table, within a table feature after feature, in the order of first
            look-up.
        user: the only trainer that uses the row, or `SEVERAL`, `[U]`.
    """

    rows: NDArray[np.integer]
    starts: list[int]
    samples: int
    unique: NDArray[np.integer]
    user: Int32s

    @property
    def nbytes(self) -> int:
        """Memory that it takes, in bytes."""
        return self.rows.nbytes + self.unique.nbytes + self.user.nbytes


@dataclass(frozen=True)
class RowChoice:
    """What a rule says of each unique row of a batch; all arrays bool `[U]`.

    Attributes:
        dead: the row leaves the caches after the batch, and is written back.
        private: one trainer alone updates the row, without a sum over the trainers, and writes it back: the row is
            dead, and no other trainer uses it. If it is fetched for this batch, that trainer alone fetches it.
        now: the row's sum over the trainers is needed before the next batch starts. The sums of other rows run behind
            that batch, and reach the caches before the batch after it. Means nothing for private rows.
    """

    dead: Bools
    private: Bools
    now: Bools


@dataclass(frozen=True)
class Decision:
    """What happens to each unique row of a batch; all arrays `[U]`.

    Attributes:
        slots: where the row lives while the batch is computed.
        fetched: the row was absent, so it is fetched for this batch.
        private: its only user updates it and writes it back, without a reduction.
        now: the next batch uses it. A row that is neither private nor now is later.
    """

    slots: Int32s
    fetched: Bools
    private: Bools
    now: Bools

    @property
    def later(self) -> Bools:
        """Rows whose reduction may hide behind the next batch: neither private nor now."""
        return ~(self.now | self.private)


@dataclass
class RetiredRows:
    """Rows that leave the caches together, one array a batch: global rows, their slots, who writes them back."""

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
"""Rows that leave, by the number of the group with which they leave."""


def distinct(values: NDArray[np.int64]) -> Int64s:
    """Each value once, ascending. `np.unique` hashes integers, which takes 30 times as long for the rows of a batch."""
    ordered = np.sort(values)
    is_first = np.ones(ordered.size, dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    found: Int64s = ordered[is_first]
    return found


def extend_groups(groups: RetiredByGroup, others: RetiredByGroup) -> None:
    """Add the rows of others to those of the same groups."""
    for group, retired in others.items():
        groups.setdefault(group, RetiredRows()).extend(retired)
