"""A planner in NumPy that leaves only the rule to a subclass: what happens to a batch's rows. It writes the plans.

Legend: `U` unique rows of a batch.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import NO_GROUP, BatchPlan, SharedPlan, TrainerPlan, as_positions
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.batch_rows import (
    NO_ROWS,
    NO_SLOTS,
    SEVERAL,
    Decision,
    Int32s,
    Int64s,
    LoadedBatch,
    RetiredByGroup,
    RetiredRows,
    RowChoice,
    extend_groups,
)
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.row_slots import RowSlots
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window


class RulePlanner(ABC):
    """Implements the `Planner` protocol for a rule, which is the method `choose` of a subclass.

    It gives slots, translates look-ups to positions, and retires rows group by group. A subclass may let rows leave
    after batches that do not use them (`leaving`), and override who writes back (`writers`) and in which groups rows
    leave (`prefetch_after`, `retiring_group`, `leaving_group`, `group_started_by`). A shared row is in all caches or in
    none, a private one in the cache of its only user. What is left when a segment ends leaves with its closing plan.

    Args:
        total_rows: rows of all tables.
        trainers: number of trainers T.
        window: look-ahead and group.
        shared_capacity: slots below this number mean the same row on every trainer.
        private_capacity: further slots of each trainer that are its own.
        verify: put the expected version of every row into the plans (`debug.verify_rows`).
        feature_tables: as in `RunFacts`. They order the rows in a plan, table after table, and change nothing else.
    """

    loads_beside: ClassVar[bool] = False
    """As `Planner.loads_beside`."""
    slots_kind: ClassVar[type[RowSlots]] = RowSlots
    """The class that keeps the slots of its rows."""

    def __init__(
        self,
        total_rows: int,
        trainers: int,
        window: Window,
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
        *,
        verify: bool = False,
        feature_tables: Sequence[int] = (),
    ) -> None:
        self.window = window
        self.trainers = trainers
        self.rows = self.new_slots(
            total_rows, trainers, shared_capacity, private_capacity, verify=verify, feature_tables=feature_tables
        )
        self._training = True
        self._first_step = 0
        self._loaded: deque[LoadedBatch] = deque()
        self._loaded_count = 0
        self._prefetch_after = NO_GROUP
        self._unwritten: RetiredByGroup = {}  # rows whose write-back is not in a plan yet
        self._occupied: RetiredByGroup = {}  # rows whose slots are free only for a later prefetch
        self._window_bytes = 0

    def new_slots(self, *arguments: Any, **settings: Any) -> RowSlots:
        """A new object that keeps the slots of its rows; arguments as for `RowSlots`."""
        return self.slots_kind(*arguments, **settings)

    # The rule.

    @abstractmethod
    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:
        """Say what happens to each row of a batch.

        Args:
            number: number of the batch in its segment, from 0.
            batch: the oldest batch of the window.
            following: the next batch; None after the last of a segment, and where the window holds no other.
        """

    def note_loaded(self, number: int, batch: LoadedBatch) -> None:  # noqa: B027 - few rules want to know
        """Learn that batch `number` has come into the window."""

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        """Rows that leave the caches after batch `number` although it does not use them, distinct, int64; here none.

        They must be resident. Called once the batch's own rows have slots; its dead rows are no longer resident then.
        """
        return NO_ROWS

    def writers(self, batch: LoadedBatch, choice: RowChoice) -> Int32s:
        """Who writes each dead row back, int32 `[dead rows]`: the only user of a private one, else trainers in turn."""
        dead = choice.dead
        in_turn = np.arange(int(dead.sum()), dtype=np.int32) % self.trainers
        return np.where(choice.private[dead], batch.user[dead], in_turn)

    def prefetch_after(self, number: int) -> int:
        """Group that must be retired before the rows of a batch are fetched."""
        return self.window.group_before_prefetch(number)

    def latest_prefetch_after(self, number: int) -> int:
        """The latest group that a batch's fetches may wait for where slots are lacking; here no later one."""
        return self.prefetch_after(number)

    def retiring_group(self, number: int) -> int:
        """Group with which rows that are dead after batch `number` are written back."""
        return self.window.group_that_retires(number)

    def leaving_group(self, number: int) -> int:
        """Group with which rows are written back that leave after batch `number` although it does not use them."""
        return self.window.group_that_leaves(number)

    def group_started_by(self, number: int) -> int:
        """Group whose write-backs start after batch `number`; `NO_GROUP` for none."""
        return self.window.group_started_by(number)

    # The planner.

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """Forget the batches of earlier segments; no row is resident now."""
        self._training = training
        self._first_step = first_step
        self._loaded.clear()
        self._loaded_count = 0
        self._prefetch_after = NO_GROUP

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        """Take the next batch into the window.

        Raises:
            DataError: a row lies outside the tables.
        """
        batch = self.rows.look_through(rows, slice_bounds(rows.samples, self.trainers) if bounds is None else bounds)
        self._loaded.append(batch)
        self.note_loaded(self._loaded_count, batch)
        self._loaded_count += 1
        in_window = sum(batch.nbytes for batch in self._loaded)
        waiting = sum(retired.nbytes for retired in self._occupied.values())
        self._window_bytes = max(self._window_bytes, in_window + waiting)

    def decide(self, number: int) -> None:
        """Give slots to what the oldest batch of the window fetches, and take it out of the window."""
        self._decide(number)

    def _decide(self, number: int) -> tuple[LoadedBatch, Decision, RetiredByGroup]:
        """Free what is retired before the batch is fetched, then decide on its rows."""
        batch = self._oldest(number)
        choice = self.choose(number, batch, self._loaded[0] if self._loaded else None)
        _require_possible(number, batch, choice)
        self._make_room(number, lambda: self.rows.has_slots(batch, choice.private))
        slots, fetched = self.rows.give(batch, choice.private, choice.dead)
        dead = choice.dead
        retired = RetiredRows([batch.unique[dead].astype(np.int64)], [slots[dead]], [self.writers(batch, choice)])
        decision = Decision(slots, fetched, choice.private, choice.now & ~choice.private)
        return batch, decision, self._retire(number, batch, retired)

    def _oldest(self, number: int) -> LoadedBatch:
        """Free what is retired before the oldest batch of the window is fetched, and take that out of the window."""
        self._prefetch_after = max(self._prefetch_after, self.prefetch_after(number))
        self._free(self._prefetch_after)
        return self._loaded.popleft()

    def _retire(self, number: int, batch: LoadedBatch, dead: RetiredRows) -> RetiredByGroup:
        """Rows that leave after a batch, by group: dead rows, and those that the rule names. Slots are freed later."""
        retired = {self.retiring_group(number): dead}
        if (rows := self.leaving(number, batch)).size:
            extend_groups(retired, {self.leaving_group(number): self.rows.take_out(number, batch, rows)})
        extend_groups(self._occupied, retired)
        return retired

    def _make_room(self, number: int, has_slots: Callable[[], bool]) -> None:
        """Where slots are lacking, let the batch's fetches wait for later groups, one after the other."""
        latest = self.latest_prefetch_after(number)
        while not has_slots() and (group := min(self._occupied, default=latest + 1)) <= latest:
            self._prefetch_after = group
            self._free(group)

    def _free(self, group: int) -> None:
        for due in [number for number in self._occupied if number <= group]:
            self.rows.free(self._occupied.pop(due))

    def plan(self, number: int) -> BatchPlan:
        """Decide on the oldest batch of the window, and write the decision down."""
        batch, decision, retired = self._decide(number)
        extend_groups(self._unwritten, retired)
        now, later, private = decision.now, decision.later, decision.private
        fetch = decision.fetched & ~private
        retire_group = self.group_started_by(number)
        rows, versions = self.rows.expected_versions(np.concatenate((batch.unique[now], batch.unique[later])))
        shared = SharedPlan(
            batch=number,
            samples=batch.samples,
            prefetch_after=self._prefetch_after,
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
        shared_rows = now.sum() + later.sum()
        trainers = []
        for trainer, positions in enumerate(self.rows.positions(batch, decision)):
            own = private & (batch.user == trainer)
            own_fetch = own & decision.fetched
            rows, versions = self.rows.expected_versions(batch.unique[own])
            trainers.append(
                TrainerPlan(
                    positions=as_positions(positions, int(shared_rows + own.sum())),
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
            self.rows.count_update(batch, self._first_step + number + 1)
        return BatchPlan(shared, tuple(trainers))

    def closing_plan(self) -> BatchPlan:
        """Retire whatever is left."""
        if (rows := self.rows.resident).size:
            left = {self.leaving_group(self._loaded_count): self.rows.take_out(self._loaded_count, None, rows)}
            extend_groups(self._occupied, left)
            extend_groups(self._unwritten, left)
        group = max(self._unwritten, default=NO_GROUP)
        shared = SharedPlan(
            batch=self._loaded_count,
            samples=0,
            prefetch_after=NO_GROUP,
            retire_group=group,
            unique_rows=0,
            fetched_rows=0,
            now_slots=NO_SLOTS,
            later_slots=NO_SLOTS,
            fetch_rows=NO_ROWS,
            fetch_slots=NO_SLOTS,
            rows=NO_ROWS,
            versions=NO_SLOTS,
        )
        trainers = tuple(
            TrainerPlan(NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, rows, slots, NO_ROWS, NO_SLOTS)
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
            return [(NO_ROWS, NO_SLOTS)] * self.trainers
        rows, slots, writers = (np.concatenate(parts) for parts in (due.rows, due.slots, due.writers))
        return [(rows[writers == trainer], slots[writers == trainer]) for trainer in range(self.trainers)]

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        return PlannerSize(self.rows.state_bytes, self._window_bytes, *self.rows.peaks)


def _require_possible(number: int, batch: LoadedBatch, choice: RowChoice) -> None:
    """Check that a choice can be carried out.

    Raises:
        PlanError: it is not a `RowChoice` for the batch, or a private row stays or has several users.
    """
    if not isinstance(choice, RowChoice):
        raise PlanError(f"batch {number}: choose gives {choice!r}: return a RowChoice")
    for name, rows in vars(choice).items():
        if not isinstance(rows, np.ndarray) or rows.dtype != np.bool_ or rows.shape != batch.unique.shape:
            what = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, np.ndarray) else type(rows).__name__
            raise PlanError(f"batch {number}: {name} of its RowChoice is {what}: give bool {list(batch.unique.shape)}")
    private = choice.private
    for what, wrong in (
        ("is private and does not leave the cache: only dead rows may be private", private & ~choice.dead),
        ("is private, but several trainers use it", private & (batch.user == SEVERAL)),
    ):
        if wrong.any():
            raise PlanError(f"batch {number}: row {batch.unique[wrong][0]} {what}")
