"""What a planner in NumPy keeps for every table row: its slot, its version, and a scratch number.

Legend: `F` features, `V` look-ups of a batch, `U` unique rows of it. Every step works on whole arrays; the only Python
loop is over trainers.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError, PlanError
from bagpipe_hpc.plan.bags import Bags
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
from bagpipe_hpc.planning.sound_rows import require_rows_of_tables

ABSENT = -1
"""Slot of a row that is in no cache."""


def state_bytes(total_rows: int, *, verify: bool) -> int:
    """Bytes of the per-row state: slot, scratch and, where rows are verified, version."""
    return total_rows * (12 if verify else 8)


class RowSlots:
    """Slots of the caches, and which row lives in which.

    Args:
        total_rows: rows of all tables.
        trainers: number of trainers T.
        shared_capacity: slots below this number mean the same row on every trainer.
        private_capacity: further slots of each trainer that are its own.
        verify: keep the version of each row.
        feature_tables: the table of each feature, `[F]`; empty where feature f has table f.
    """

    def __init__(
        self,
        total_rows: int,
        trainers: int,
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
        *,
        verify: bool = False,
        feature_tables: Sequence[int] = (),
    ) -> None:
        self._trainers = trainers
        self._feature_order = np.argsort(np.asarray(feature_tables, dtype=np.int64), kind="stable")
        self._row_type = np.int32 if total_rows <= np.iinfo(np.int32).max else np.int64
        self._slot = np.full(total_rows, ABSENT, dtype=np.int32)
        self._scratch = np.empty(total_rows, dtype=np.int32)
        self._version = np.zeros(total_rows, dtype=np.int32) if verify else None
        self._first_private = np.int32(first_private_slot(shared_capacity))
        self._shared_pool = SlotPool("shared", shared_capacity)
        self._private_pools = [SlotPool(f"private (trainer {r})", private_capacity) for r in range(trainers)]

    @property
    def state_bytes(self) -> int:
        """Bytes of the per-row state."""
        return state_bytes(self._slot.size, verify=self._version is not None)

    @property
    def peaks(self) -> tuple[int, int]:
        """Most shared slots in use at once, and most private slots of the trainer with the most."""
        return self._shared_pool.peak, max(pool.peak for pool in self._private_pools)

    def look_through(self, rows: Bags, bounds: Sequence[int]) -> LoadedBatch:
        """Find a batch's unique rows, and for each the only trainer that uses it, if there is one.

        Args:
            rows: global rows.
            bounds: first sample of each trainer's slice and the end of the last, `[trainers + 1]`.

        Raises:
            DataError: a row lies outside the tables, or the bags are malformed.
        """
        require_rows_of_tables(rows, self._scratch.size)
        by_sample: NDArray[np.integer] = rows.values.astype(self._row_type, copy=False)
        by_table = self._by_table(rows)
        positions = np.arange(by_table.size, dtype=np.int32)
        # Assigning with repeated indices keeps the last value; backwards, that is the first.
        self._scratch[by_table[::-1]] = positions[::-1]
        unique = by_table[self._scratch[by_table] == positions]
        starts = rows.starts(bounds)
        users = np.repeat(np.arange(self._trainers, dtype=np.int32), np.diff(starts))
        self._scratch[by_sample] = users
        last_user = self._scratch[unique]
        self._scratch[by_sample[::-1]] = users[::-1]
        first_user = self._scratch[unique]
        user = np.where(first_user == last_user, first_user, np.int32(SEVERAL))
        return LoadedBatch(by_sample, starts.tolist(), rows.samples, unique, user)

    def _by_table(self, rows: Bags) -> NDArray[np.integer]:
        """The rows of all look-ups, `[V]`: by table, within a table by feature, within a feature by sample.

        In this order tables can be worked on separately.
        """
        if self._feature_order.size not in (0, rows.features):
            raise DataError(f"a batch of {rows.features} features: there are {self._feature_order.size}")
        order = self._feature_order if self._feature_order.size else np.arange(rows.features)
        if (grid := rows.grid) is not None:
            columns: NDArray[np.integer] = np.ascontiguousarray(grid.T[order], dtype=self._row_type)
            return columns.reshape(-1)
        place_of_feature = np.empty(rows.features, dtype=np.min_scalar_type(rows.features))  # few bits sort faster
        place_of_feature[order] = np.arange(rows.features)
        places = np.argsort(place_of_feature[rows.columns], kind="stable")
        by_table: NDArray[np.integer] = rows.values[places].astype(self._row_type, copy=False)
        return by_table

    def are_in(self, rows: NDArray[np.integer], others: NDArray[np.integer]) -> Bools:
        """Which rows are among others, bool of the shape of `rows`."""
        self._scratch[rows] = 0
        self._scratch[others] = 1
        found: Bools = self._scratch[rows] == 1
        return found

    def has_slots(self, batch: LoadedBatch, private: Bools) -> bool:
        """Whether there are slots for all rows of a batch that are in no cache."""
        fetched = self._slot[batch.unique] == ABSENT
        users = np.bincount(batch.user[fetched & private], minlength=self._trainers)
        return self._shared_pool.has(int((fetched & ~private).sum())) and all(
            pool.has(int(count)) for pool, count in zip(self._private_pools, users, strict=True)
        )

    def give(self, batch: LoadedBatch, private: Bools, dead: Bools) -> tuple[Int32s, Bools]:
        """Give slots to the rows of a batch that are in no cache, and forget the slots of its dead rows.

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

    def has(self, rows: NDArray[np.integer]) -> Bools:
        """Which rows have a slot, bool of the shape of `rows`."""
        resident: Bools = self._slot[rows] != ABSENT
        return resident

    @property
    def resident(self) -> Int64s:
        """Rows that have a slot."""
        return np.flatnonzero(self._slot != ABSENT)

    def take_out(self, number: int, batch: LoadedBatch | None, rows: Int64s) -> RetiredRows:
        """Take slots away from resident rows that batch `number` does not use; the slots are freed later.

        Raises:
            PlanError: a row is in no cache, in the batch, or named twice.
        """
        if batch is not None and (used := self.are_in(rows, batch.unique)).any():
            raise PlanError(
                f"batch {number}: row {rows[used][0]} is to leave behind a batch that uses it: say that it is dead"
            )
        slots = self._slot[rows]
        if (absent := slots == ABSENT).any():
            raise PlanError(f"batch {number}: row {rows[absent][0]} is to leave, and is in no cache")
        if (distinct := np.unique(rows, return_counts=True))[0].size != rows.size:
            raise PlanError(f"batch {number}: row {distinct[0][distinct[1] > 1][0]} is to leave twice")
        self._slot[rows] = ABSENT
        return RetiredRows([rows], [slots], [self.writers(rows)])

    def writers(self, rows: Int64s) -> Int32s:
        """Who writes back rows that have stayed, int32 `[rows]`: all trainers hold them, and take turns."""
        return np.arange(rows.size, dtype=np.int32) % self._trainers

    def free(self, retired: RetiredRows) -> None:
        """Return the slots of a retired group: shared ones once, private ones to the trainer that held them."""
        for slots, writers in zip(retired.slots, retired.writers, strict=True):
            is_own = slots >= self._first_private
            self._shared_pool.give(slots[~is_own])
            for trainer, pool in enumerate(self._private_pools):
                pool.give(slots[is_own & (writers == trainer)] - self._first_private)

    def positions(self, batch: LoadedBatch, decision: Decision) -> list[Int32s]:
        """Translate each trainer's look-ups to indices into its now, later and private slots, int32 `[look-ups]`."""
        shared_rows = np.concatenate((batch.unique[decision.now], batch.unique[decision.later]))
        self._scratch[shared_rows] = np.arange(shared_rows.size, dtype=np.int32)
        for trainer in range(self._trainers):
            own = batch.unique[decision.private & (batch.user == trainer)]
            self._scratch[own] = np.arange(shared_rows.size, shared_rows.size + own.size, dtype=np.int32)
        translated = self._scratch[batch.rows]
        return [translated[first:last] for first, last in pairwise(batch.starts)]

    def expected_versions(self, rows: NDArray[np.integer]) -> tuple[Int64s, Int32s]:
        """Rows and their versions as plans carry them; empty unless rows are verified."""
        if self._version is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return rows.astype(np.int64), self._version[rows]

    def count_update(self, batch: LoadedBatch, step: int) -> None:
        """Note that training step `step` (from 1) updates the batch's rows."""
        if self._version is not None:
            self._version[batch.unique] = step
