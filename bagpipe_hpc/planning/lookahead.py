"""The planner in NumPy: the rules applied to one batch after another, and written down as plans."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.batch_plan import NO_GROUP, BatchPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.rules import Decision, Int32s, Int64s, LoadedBatch, LookaheadRules, RetiredRows
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window

_NO_ROWS = np.empty(0, dtype=np.int64)
_NO_SLOTS = np.empty(0, dtype=np.int32)


class LookaheadPlanner(LookaheadRules):
    """The reference implementation of `Planner`; the arguments are those of the rules."""

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
        super().__init__(total_rows, trainers, window, shared_capacity, private_capacity, verify=verify)
        self._training = True
        self._first_step = 0
        self._loaded: deque[LoadedBatch] = deque()
        self._loaded_count = 0
        self._unwritten: dict[int, RetiredRows] = {}  # group -> rows whose write-back is not in a plan yet
        self._occupied: dict[int, RetiredRows] = {}  # group -> slots that only a later prefetch may take
        self._window_bytes = 0

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """Forget the batches of earlier segments; no row is resident now."""
        self.forget_last_uses()
        self._training = training
        self._first_step = first_step
        self._loaded.clear()
        self._loaded_count = 0

    def load(self, rows: NDArray[np.integer]) -> None:
        """Take the next batch into the window.

        Raises:
            DataError: a row lies outside the tables.
        """
        self._loaded.append(self.take_in(self._loaded_count, rows))
        self._loaded_count += 1
        in_window = sum(batch.nbytes for batch in self._loaded)
        waiting = sum(retired.nbytes for retired in self._occupied.values())
        self._window_bytes = max(self._window_bytes, in_window + waiting)

    def decide(self, number: int) -> None:
        """Give slots to what the oldest batch of the window fetches, and take it out of the window."""
        self._decide(number)

    def _decide(self, number: int) -> tuple[LoadedBatch, Decision, RetiredRows]:
        """Free what is retired before the batch is fetched, then decide on its rows."""
        self._free(self.window.group_before_prefetch(number))
        batch = self._loaded.popleft()
        decision, retired = self.apply_rules(number, batch, self._loaded[0] if self._loaded else None)
        self._occupied.setdefault(self.retiring_group(number), RetiredRows()).extend(retired)
        return batch, decision, retired

    def _free(self, group: int) -> None:
        for due in [number for number in self._occupied if number <= group]:
            self.free(self._occupied.pop(due))

    def plan(self, number: int) -> BatchPlan:
        """Decide on the oldest batch of the window, and write the decision down."""
        batch, decision, retired = self._decide(number)
        self._unwritten.setdefault(self.retiring_group(number), RetiredRows()).extend(retired)
        now, later, private = decision.now, decision.later, decision.private
        fetch = decision.fetched & ~private
        retire_group = self.window.group_started_by(number)
        rows, versions = self.expected_versions(np.concatenate((batch.unique[now], batch.unique[later])))
        shared = SharedPlan(
            batch=number,
            samples=batch.samples,
            prefetch_after=self.window.group_before_prefetch(number),
            retire_group=retire_group,
            unique_rows=batch.unique.size,
            fetched_rows=int(decision.fetched.sum()),
            now_slots=decision.slots[now],
            later_slots=decision.slots[later],
            fetch_rows=batch.unique[fetch].astype(np.int64),
            fetch_slots=decision.slots[fetch],
            rows=rows,
            versions=versions,
        )
        write_backs = self._write_backs(retire_group)
        trainers = []
        for trainer, positions in enumerate(self.positions(batch, decision)):
            own = private & (batch.user == trainer)
            own_fetch = own & decision.fetched
            rows, versions = self.expected_versions(batch.unique[own])
            trainers.append(
                TrainerPlan(
                    positions=positions,
                    private_slots=decision.slots[own],
                    fetch_rows=batch.unique[own_fetch].astype(np.int64),
                    fetch_slots=decision.slots[own_fetch],
                    write_back_rows=write_backs[trainer][0],
                    write_back_slots=write_backs[trainer][1],
                    rows=rows,
                    versions=versions,
                )
            )
        if self._training:
            self.count_update(batch, self._first_step + number + 1)
        return BatchPlan(shared, tuple(trainers))

    def closing_plan(self) -> BatchPlan:
        """Retire whatever is left."""
        group = max(self._unwritten, default=NO_GROUP)
        shared = SharedPlan(
            batch=self._loaded_count,
            samples=0,
            prefetch_after=NO_GROUP,
            retire_group=group,
            unique_rows=0,
            fetched_rows=0,
            now_slots=_NO_SLOTS,
            later_slots=_NO_SLOTS,
            fetch_rows=_NO_ROWS,
            fetch_slots=_NO_SLOTS,
            rows=_NO_ROWS,
            versions=_NO_SLOTS,
        )
        trainers = tuple(
            TrainerPlan(_NO_SLOTS, _NO_SLOTS, _NO_ROWS, _NO_SLOTS, rows, slots, _NO_ROWS, _NO_SLOTS)
            for rows, slots in self._write_backs(group)
        )
        self._free(max(self._occupied, default=NO_GROUP))
        return BatchPlan(shared, trainers)

    def _write_backs(self, group: int) -> list[tuple[Int64s, Int32s]]:
        """Rows and slots that each trainer writes back with `group`; an evaluation writes nothing back."""
        due = RetiredRows()
        for number in [number for number in self._unwritten if number <= group]:
            due.extend(self._unwritten.pop(number))
        if not due.rows or not self._training:
            return [(_NO_ROWS, _NO_SLOTS)] * self.trainers
        rows, slots, writers = (np.concatenate(parts) for parts in (due.rows, due.slots, due.writers))
        return [(rows[writers == trainer], slots[writers == trainer]) for trainer in range(self.trainers)]

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        private = max(pool.peak for pool in self.private_pools)
        return PlannerSize(self.state_bytes, self._window_bytes, self.shared_pool.peak, private)
