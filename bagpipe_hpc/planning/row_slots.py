"""What a planner in NumPy keeps of every table row: its slot, its version, and a scratch number.

Legend: `n` samples of a batch, `F` sparse features, `U` unique rows of a batch. Every step works on whole arrays; the
only Python loop is over trainers.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.planning.batch_rows import (
    SEVERAL,
    Bools,
    Decision,
    Int32s,
    Int64s,
    LoadedBatch,
    RetiredRows,
)
from bagpipe_hpc.planning.slots import UNLIMITED, SlotPool, first_private_slot

ABSENT = -1
"""Slot of a row that is in no cache."""


def state_bytes(total_rows: int, *, verify: bool) -> int:
    """Memory of the per-row state: slot, scratch and, where rows are verified, version."""
    return total_rows * (12 if verify else 8)


class RowSlots:
    """Slots of the caches, and which row lives in which.

    Args:
        total_rows: rows of all tables.
        trainers: number of trainers T.
        shared_capacity: slots below this number mean the same row on every trainer.
        private_capacity: further slots of each trainer that are its own.
        verify: know the version of each row.
    """

    def __init__(
        self,
        total_rows: int,
        trainers: int,
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
        *,
        verify: bool = False,
    ) -> None:
        self._trainers = trainers
        self._row_type = np.int32 if total_rows <= np.iinfo(np.int32).max else np.int64
        self._slot = np.full(total_rows, ABSENT, dtype=np.int32)
        self._scratch = np.empty(total_rows, dtype=np.int32)
        self._version = np.zeros(total_rows, dtype=np.int32) if verify else None
        self._first_private = np.int32(first_private_slot(shared_capacity))
        self._shared_pool = SlotPool("shared", shared_capacity)
        self._private_pools = [SlotPool(f"private (trainer {r})", private_capacity) for r in range(trainers)]

    @property
    def state_bytes(self) -> int:
        """Memory of the per-row state."""
        return state_bytes(self._slot.size, verify=self._version is not None)

    @property
    def peaks(self) -> tuple[int, int]:
        """Most shared slots in use at once, and most private slots of the trainer with the most."""
        return self._shared_pool.peak, max(pool.peak for pool in self._private_pools)

    def look_through(self, rows: NDArray[np.integer], bounds: Sequence[int]) -> LoadedBatch:
        """Find a batch's unique rows, and which trainer is the only user of each.

        Unique rows are in the order of their first look-up when one column is gone through after the other: table by
        table, so that the tables can be worked on apart.

        Args:
            rows: global rows `[n, F]`.
            bounds: as those of a `LoadedBatch`.

        Raises:
            DataError: a row lies outside the tables.
        """
        features = rows.shape[1]
        if rows.size and not 0 <= rows.min() <= rows.max() < self._scratch.size:
            raise DataError(
                f"rows {rows.min()} to {rows.max()} of a batch: the tables have rows 0 to below {self._scratch.size}"
            )
        by_sample: NDArray[np.integer] = rows.reshape(-1).astype(self._row_type, copy=False)
        by_column = np.ascontiguousarray(rows.T, dtype=self._row_type).reshape(-1)
        positions = np.arange(rows.size, dtype=np.int32)
        # Assigning with repeated indices keeps the last value; backwards, that is the first.
        self._scratch[by_column[::-1]] = positions[::-1]
        unique = by_column[self._scratch[by_column] == positions]
        users = np.repeat(np.arange(self._trainers, dtype=np.int32), np.diff(bounds) * features)
        self._scratch[by_sample] = users
        last_user = self._scratch[unique]
        self._scratch[by_sample[::-1]] = users[::-1]
        first_user = self._scratch[unique]
        user = np.where(first_user == last_user, first_user, np.int32(SEVERAL))
        return LoadedBatch(by_sample, list(bounds), unique, user)

    def are_in(self, rows: NDArray[np.integer], others: NDArray[np.integer]) -> Bools:
        """Which rows are among others, bool of the shape of `rows`."""
        self._scratch[rows] = 0
        self._scratch[others] = 1
        found: Bools = self._scratch[rows] == 1
        return found

    def give(self, batch: LoadedBatch, private: Bools, dead: Bools) -> tuple[Int32s, Bools]:
        """Give slots to the rows of a batch that are in no cache; those of dead rows are not theirs afterwards.

        Returns:
            The slot of each row, and whether it was absent, both `[U]`.

        Raises:
            CapacityError: there are not enough slots.
        """
        slots = self._slot[batch.unique]
        fetched: Bools = slots == ABSENT
        shared_fetch = fetched & ~private
        slots[shared_fetch] = self._shared_pool.take(int(shared_fetch.sum()))
        for trainer, pool in enumerate(self._private_pools):
            own_fetch = fetched & private & (batch.user == trainer)
            slots[own_fetch] = pool.take(int(own_fetch.sum())) + self._first_private
        self._slot[batch.unique] = np.where(dead, np.int32(ABSENT), slots)
        return slots, fetched

    def free(self, retired: RetiredRows) -> None:
        """Return the slots of a retired group: shared ones once, private ones to the trainer that held them."""
        for slots, writers in zip(retired.slots, retired.writers, strict=True):
            is_own = slots >= self._first_private
            self._shared_pool.give(slots[~is_own])
            for trainer, pool in enumerate(self._private_pools):
                pool.give(slots[is_own & (writers == trainer)] - self._first_private)

    def positions(self, batch: LoadedBatch, decision: Decision) -> list[Int32s]:
        """Translate each trainer's look-ups to indices into its now, later and private slots, flat int32 a trainer."""
        shared_rows = np.concatenate((batch.unique[decision.now], batch.unique[decision.later]))
        self._scratch[shared_rows] = np.arange(shared_rows.size, dtype=np.int32)
        for trainer in range(self._trainers):
            own = batch.unique[decision.private & (batch.user == trainer)]
            self._scratch[own] = np.arange(shared_rows.size, shared_rows.size + own.size, dtype=np.int32)
        translated = self._scratch[batch.rows]
        features = batch.rows.size // batch.samples if batch.samples else 0
        return [translated[first * features : last * features] for first, last in pairwise(batch.bounds)]

    def expected_versions(self, rows: NDArray[np.integer]) -> tuple[Int64s, Int32s]:
        """Rows and their versions as the plans carry them: empty unless rows are verified."""
        if self._version is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return rows.astype(np.int64), self._version[rows]

    def count_update(self, batch: LoadedBatch, step: int) -> None:
        """Note that training step `step` (from 1) updates the batch's rows."""
        if self._version is not None:
            self._version[batch.unique] = step
