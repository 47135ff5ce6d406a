"""Executes plans on imaginary trainers in exact integer arithmetic: what the real ones do, without time or MPI.

A row's value is an integer; the gradient of a look-up depends on the value that was read, so a single stale, lost or
doubled update changes the final tables. The mover runs as early or as late as the rules allow it, since either may be
the one that shows a broken rule.
"""

from collections import deque

import numpy as np

from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.slices import slice_bounds

PRIME = 2_147_483_629
POISON = -(10**12)


def gradient(values: np.ndarray, batch: int) -> np.ndarray:
    """The made-up gradient of look-ups that read `values` in `batch`; never 0, so a lost one shows."""
    return (values * 31 + batch * 7919 + 17) % PRIME + 1


def train_plainly(batches: list[np.ndarray], total_rows: int, table: np.ndarray | None = None) -> np.ndarray:
    """The reference: every batch reads the tables and updates them before the next one."""
    if table is None:
        table = np.arange(total_rows, dtype=np.int64)
    for number, rows in enumerate(batches):
        sums = np.zeros(total_rows, dtype=np.int64)
        np.add.at(sums, rows.reshape(-1), gradient(table[rows.reshape(-1)], number))
        table = np.where(sums > 0, (table * 3 + sums) % PRIME, table)
    return table


class ViolationError(AssertionError):
    """A plan asked for something that the rules forbid."""


class Executor:
    """T trainers with a row cache each, a mover each, and one store."""

    def __init__(self, total_rows: int, trainers: int, shared: int, private: int, *, eager: bool) -> None:
        self.store = np.arange(total_rows, dtype=np.int64)
        self.caches = [np.full(shared + private, POISON) for _ in range(trainers)]
        self.shared = shared
        self.held: list[dict[int, int]] = [{} for _ in range(trainers)]  # row -> slot, for each trainer
        self.eager = eager
        self.retired = 0
        self.to_retire: deque[BatchPlan] = deque()
        self.to_fetch: deque[BatchPlan] = deque()
        self.pending: tuple[np.ndarray, np.ndarray] | None = None
        self.fetches = 0
        self.write_backs = 0
        self.most_resident = 0
        self.slot_row: list[dict[int, int]] = [{} for _ in range(trainers)]

    def run(self, plans: list[BatchPlan], batches: list[np.ndarray]) -> None:
        """Carry out a segment."""
        self.to_fetch.extend(plan for plan in plans if not plan.shared.is_closing)
        if self.eager:
            self._prefetch()
        for number, plan in enumerate(plans):
            if not plan.shared.is_closing:
                self._wait_ready(plan)
                self._step(number, plan, batches[number])
            else:
                self._finish_pending()
            if plan.shared.retire_group:
                self.to_retire.append(plan)
                if self.eager:
                    self._move_one()
        while self.to_retire:
            self._move_one()
        if any(self.held):
            raise ViolationError(f"rows left in caches: {self.held}")

    def _wait_ready(self, plan: BatchPlan) -> None:
        if self.retired == 0:
            self._prefetch()
        while self.to_fetch and self.to_fetch[0].shared.batch <= plan.shared.batch:
            if not self.to_retire:
                raise ViolationError(f"batch {plan.shared.batch} waits for ever: nothing is left to retire")
            self._move_one()

    def _move_one(self) -> None:
        plan = self.to_retire.popleft()
        for trainer, part in enumerate(plan.trainers):
            for row, slot in zip(part.write_back_rows.tolist(), part.write_back_slots.tolist(), strict=True):
                if self.held[trainer].get(row) != slot:
                    raise ViolationError(
                        f"trainer {trainer} writes back row {row} from slot {slot}, held {self.held[trainer]}"
                    )
                self.store[row] = self.caches[trainer][slot]
                self.write_backs += 1
                for held, slots in zip(self.held, self.slot_row, strict=True):
                    if row in held and (slot < self.shared or held is self.held[trainer]):
                        slots.pop(held.pop(row))
        self.retired = plan.shared.retire_group
        self._prefetch()

    def _prefetch(self) -> None:
        while self.to_fetch and self.to_fetch[0].shared.prefetch_after <= self.retired:
            plan = self.to_fetch.popleft()
            for trainer, part in enumerate(plan.trainers):
                self._fetch(trainer, plan.shared.fetch_rows, plan.shared.fetch_slots, private=False)
                self._fetch(trainer, part.fetch_rows, part.fetch_slots, private=True)
                self.fetches += part.fetch_rows.size
            self.fetches += plan.shared.fetch_rows.size
            self.most_resident = max(self.most_resident, *(len(held) for held in self.held))

    def _fetch(self, trainer: int, rows: np.ndarray, slots: np.ndarray, *, private: bool) -> None:
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            if row in self.held[trainer]:
                raise ViolationError(f"trainer {trainer} fetches row {row} twice")
            if slot in self.slot_row[trainer]:
                raise ViolationError(
                    f"slot {slot} of trainer {trainer} is given to row {row} and {self.slot_row[trainer][slot]}"
                )
            if (slot >= self.shared) != private or slot >= self.caches[trainer].size:
                raise ViolationError(f"slot {slot} is of the wrong kind or above the capacity")
            self.held[trainer][row] = slot
            self.slot_row[trainer][slot] = row
            self.caches[trainer][slot] = self.store[row]

    def _step(self, number: int, plan: BatchPlan, rows: np.ndarray) -> None:
        bounds = slice_bounds(len(rows), len(plan.trainers))
        shared_slots = np.concatenate((plan.shared.now_slots, plan.shared.later_slots))
        sums = []
        for trainer, part in enumerate(plan.trainers):
            slots = np.concatenate((shared_slots, part.private_slots))
            own_rows = rows[bounds[trainer] : bounds[trainer + 1]].reshape(-1)
            read = slots[part.positions]
            expected = [self.held[trainer].get(row) for row in own_rows.tolist()]
            if read.tolist() != expected:
                raise ViolationError(
                    f"trainer {trainer} reads slots {read.tolist()} in batch {number}, rows are in {expected}"
                )
            total = np.zeros(slots.size, dtype=np.int64)
            np.add.at(total, part.positions, gradient(self.caches[trainer][read], number))
            sums.append(total)
        count = shared_slots.size
        self._finish_pending()
        for trainer, part in enumerate(plan.trainers):
            self._apply(trainer, part.private_slots, sums[trainer][count:])
        reduced = sum(total[:count] for total in sums)
        now = plan.shared.now_slots.size
        for trainer in range(len(self.caches)):
            self._apply(trainer, plan.shared.now_slots, reduced[:now])
        self.pending = (plan.shared.later_slots, reduced[now:])

    def _finish_pending(self) -> None:
        if self.pending is not None:
            for trainer in range(len(self.caches)):
                self._apply(trainer, *self.pending)
            self.pending = None

    def _apply(self, trainer: int, slots: np.ndarray, sums: np.ndarray) -> None:
        if len(set(slots.tolist())) != slots.size:
            raise ViolationError("a slot is twice in one update")
        self.caches[trainer][slots] = (self.caches[trainer][slots] * 3 + sums) % PRIME
