"""The look-ahead rules (BagPipe, SOSP 2023, section 3) in NumPy: what faster planners are tested against.

Legend: `n` samples of a batch, `F` sparse features, `U` unique rows of a batch, `L` window, `C` group.

State is three int32 numbers a table row: the newest loaded batch that uses it, its slot (-1: absent) and scratch.
Every step works on whole arrays; the only Python loop is over trainers.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.slots import UNLIMITED, SlotPool, first_private_slot
from bagpipe_hpc.planning.window import Window

ABSENT = -1
"""Slot of a row that is in no cache."""
SEVERAL = -1
"""User of a row that more than one trainer uses."""

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@dataclass
class LoadedBatch:
    """A batch in the window.

    Attributes:
        samples: number of samples n.
        rows: global rows of all look-ups, `[n * F]`, in sample order.
        unique: each of them once, `[U]`.
        user: the only trainer that uses the row, or `SEVERAL`, `[U]`.
    """

    samples: int
    rows: NDArray[np.integer]
    unique: NDArray[np.integer]
    user: Int32s

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.rows.nbytes + self.unique.nbytes + self.user.nbytes


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


class LookaheadRules:
    """A memory of every row, and the rules. Pure: it knows neither MPI nor files.

    Args:
        total_rows: rows of all tables.
        trainers: number of trainers T.
        window: look-ahead and group.
        shared_capacity: slots below this number mean the same row on every trainer.
        private_capacity: further slots of each trainer that are its own.
        verify: put the expected version of every row into the plans (`debug.verify_rows`).
    """

    def __init__(
        self,
        total_rows: int,
        trainers: int,
        window: Window,
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
        *,
        verify: bool = False,
    ) -> None:
        self.window = window
        self.trainers = trainers
        self._row_type = np.int32 if total_rows <= np.iinfo(np.int32).max else np.int64
        self._last_use = np.full(total_rows, -1, dtype=np.int32)
        self._slot = np.full(total_rows, ABSENT, dtype=np.int32)
        self._scratch = np.empty(total_rows, dtype=np.int32)
        self._version = np.zeros(total_rows, dtype=np.int32) if verify else None
        self._first_private = np.int32(first_private_slot(shared_capacity))
        self.shared_pool = SlotPool("shared", shared_capacity)
        self.private_pools = [SlotPool(f"private (trainer {r})", private_capacity) for r in range(trainers)]

    @property
    def state_bytes(self) -> int:
        """Memory of the per-row state."""
        arrays = [self._last_use, self._slot, self._scratch]
        return sum(array.nbytes for array in arrays) + (0 if self._version is None else self._version.nbytes)

    def take_in(self, number: int, rows: NDArray[np.integer]) -> LoadedBatch:
        """Take batch `number` into the window: its unique rows, and which trainer is the only user of each.

        Unique rows are in the order of their first look-up when one column is gone through after the other: table by
        table, so that the tables can be worked on apart.

        Raises:
            DataError: a row lies outside the tables.
        """
        samples, features = rows.shape
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
        self._last_use[unique] = number
        bounds = slice_bounds(samples, self.trainers)
        users = np.repeat(np.arange(self.trainers, dtype=np.int32), np.diff(bounds) * features)
        self._scratch[by_sample] = users
        last_user = self._scratch[unique]
        self._scratch[by_sample[::-1]] = users[::-1]
        first_user = self._scratch[unique]
        user = np.where(first_user == last_user, first_user, np.int32(SEVERAL))
        return LoadedBatch(samples, by_sample, unique, user)

    def forget_last_uses(self) -> None:
        """Start a segment: its are numbered from 0."""
        self._last_use.fill(-1)

    # The rules. Each is a method of its own, so that a test can break one at a time.

    def is_dead(self, number: int, batch: LoadedBatch) -> Bools:
        """Rows that no later batch of the window uses."""
        dead: Bools = self._last_use[batch.unique] == number
        return dead

    def is_private(self, dead: Bools, batch: LoadedBatch) -> Bools:
        """Rows that one trainer updates and writes back alone: dead, and used by a single trainer."""
        private: Bools = dead & (batch.user != SEVERAL)
        return private

    def is_needed_now(self, batch: LoadedBatch, following: LoadedBatch | None, private: Bools) -> Bools:
        """Rows whose update the next batch reads. Without look-ahead the next batch is unknown: all shared rows."""
        if self.window.lookahead == 1:
            return ~private
        if following is None:
            return np.zeros(batch.unique.size, dtype=np.bool_)
        self._scratch[batch.unique] = 0
        self._scratch[following.unique] = 1
        needed: Bools = self._scratch[batch.unique] == 1
        return needed

    def retiring_group(self, number: int) -> int:
        """Group with which rows that are dead after batch `number` are written back."""
        return self.window.group_that_retires(number)

    def writers(self, private: Bools, batch: LoadedBatch, dead: Bools) -> Int32s:
        """Who writes each dead row back, int32 `[dead rows]`: the only user of a private one, else trainers in turn."""
        in_turn = np.arange(int(dead.sum()), dtype=np.int32) % self.trainers
        return np.where(private[dead], batch.user[dead], in_turn)

    def apply_rules(
        self, number: int, batch: LoadedBatch, following: LoadedBatch | None
    ) -> tuple[Decision, RetiredRows]:
        """Apply the rules to a batch, give slots to what is fetched, and name the rows that are retired after it."""
        dead = self.is_dead(number, batch)
        private = self.is_private(dead, batch)
        now = self.is_needed_now(batch, following, private)
        slots = self._slot[batch.unique]
        fetched: Bools = slots == ABSENT
        shared_fetch = fetched & ~private
        slots[shared_fetch] = self.shared_pool.take(int(shared_fetch.sum()))
        for trainer, pool in enumerate(self.private_pools):
            own_fetch = fetched & private & (batch.user == trainer)
            slots[own_fetch] = pool.take(int(own_fetch.sum())) + self._first_private
        self._slot[batch.unique] = np.where(dead, np.int32(ABSENT), slots)
        retired = RetiredRows(
            [batch.unique[dead].astype(np.int64)], [slots[dead]], [self.writers(private, batch, dead)]
        )
        return Decision(slots, fetched, private, now), retired

    def free(self, retired: RetiredRows) -> None:
        """Return the slots of a retired group: shared ones once, private ones to the trainer that held them."""
        for slots, writers in zip(retired.slots, retired.writers, strict=True):
            is_own = slots >= self._first_private
            self.shared_pool.give(slots[~is_own])
            for trainer, pool in enumerate(self.private_pools):
                pool.give(slots[is_own & (writers == trainer)] - self._first_private)

    def positions(self, batch: LoadedBatch, decision: Decision) -> list[Int32s]:
        """Translate each trainer's look-ups to indices into its now, later and private slots, flat int32 a trainer."""
        shared_rows = np.concatenate((batch.unique[decision.now], batch.unique[decision.later]))
        self._scratch[shared_rows] = np.arange(shared_rows.size, dtype=np.int32)
        for trainer in range(self.trainers):
            own = batch.unique[decision.private & (batch.user == trainer)]
            self._scratch[own] = np.arange(shared_rows.size, shared_rows.size + own.size, dtype=np.int32)
        translated = self._scratch[batch.rows]
        features = batch.rows.size // batch.samples
        bounds = slice_bounds(batch.samples, self.trainers)
        return [translated[first * features : last * features] for first, last in pairwise(bounds)]

    def expected_versions(self, rows: NDArray[np.integer]) -> tuple[Int64s, Int32s]:
        """Rows and their versions as the plans carry them: empty unless rows are verified."""
        if self._version is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return rows.astype(np.int64), self._version[rows]

    def count_update(self, batch: LoadedBatch, step: int) -> None:
        """Note that training step `step` (from 1) updates the batch's rows."""
        if self._version is not None:
            self._version[batch.unique] = step
