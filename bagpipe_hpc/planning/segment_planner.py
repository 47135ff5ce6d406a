"""Moves the window over the batches of a segment and writes each decision down as a plan."""

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.batch_plan import NO_GROUP, BatchPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.planning.lookahead import Decision, LoadedBatch, LookaheadPlanner, RetiredRows

_NO_ROWS = np.empty(0, dtype=np.int64)
_NO_SLOTS = np.empty(0, dtype=np.int32)


def plan_segment(
    planner: LookaheadPlanner, batches: Iterable[NDArray[np.integer]], *, training: bool = True, first_step: int = 0
) -> Iterator[BatchPlan]:
    """Plan a segment: one plan a batch, then the closing plan, after which no row is resident.

    Args:
        planner: the rows' state; it is in use until the last plan has been taken.
        batches: global rows of each batch, integers `[n, F]`; read `lookahead` batches ahead of the plans.
        training: false for an evaluation, whose rows are dropped instead of written back.
        first_step: training steps done before the segment; versions count from there.
    """
    segment = _Segment(planner, iter(batches), training, first_step)
    for number in segment.batch_numbers():
        yield segment.plan(number)
    yield segment.closing_plan()


def measure_segment(planner: LookaheadPlanner, batches: Iterable[NDArray[np.integer]]) -> None:
    """Assign slots as `plan_segment` does, without writing plans: the planner's pools then know their peaks."""
    segment = _Segment(planner, iter(batches), training=True, first_step=0)
    for number in segment.batch_numbers():
        segment.decide(number)
    segment.closing_plan()


class _Segment:
    """One segment's window moving over its batches."""

    def __init__(
        self, planner: LookaheadPlanner, batches: Iterator[NDArray[np.integer]], training: bool, first_step: int
    ) -> None:
        self._planner = planner
        self._batches = batches
        self._training = training
        self._first_step = first_step
        self._loaded: deque[LoadedBatch] = deque()
        self._loaded_count = 0
        self._unwritten: dict[int, RetiredRows] = {}  # group -> rows whose write-back is not in a plan yet
        self._occupied: dict[int, RetiredRows] = {}  # group -> slots that only a later prefetch may take

    def batch_numbers(self) -> Iterator[int]:
        """Number of each batch in turn, with the window loaded for it."""
        self._planner.start_segment()
        number = 0
        self._load_ahead(number)
        while self._loaded:
            yield number
            self._loaded.popleft()
            number += 1
            self._load_ahead(number)

    def _load_ahead(self, number: int) -> None:
        while self._loaded_count < number + self._planner.window.lookahead:
            rows = next(self._batches, None)
            if rows is None:
                return
            self._loaded.append(self._planner.load(self._loaded_count, rows))
            self._loaded_count += 1

    def decide(self, number: int) -> Decision:
        """Free what is retired before the batch is fetched, then decide on its rows."""
        planner = self._planner
        batch, following = self._loaded[0], self._loaded[1] if len(self._loaded) > 1 else None
        self._free(planner.window.group_before_prefetch(number))
        decision, retired = planner.decide(number, batch, following)
        group = planner.retiring_group(number)
        for waiting in (self._unwritten, self._occupied):
            waiting.setdefault(group, RetiredRows()).extend(retired)
        return decision

    def _free(self, group: int) -> None:
        for due in [number for number in self._occupied if number <= group]:
            self._planner.free(self._occupied.pop(due))

    def plan(self, number: int) -> BatchPlan:
        """The plan of the oldest batch in the window."""
        planner, batch = self._planner, self._loaded[0]
        decision = self.decide(number)
        now, later, private = decision.now, decision.later, decision.private
        fetch = decision.fetched & ~private
        retire_group = planner.window.group_started_by(number)
        rows, versions = planner.expected_versions(np.concatenate((batch.unique[now], batch.unique[later])))
        shared = SharedPlan(
            batch=number,
            samples=batch.samples,
            prefetch_after=planner.window.group_before_prefetch(number),
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
        for trainer, positions in enumerate(planner.positions(batch, decision)):
            own = private & (batch.user == trainer)
            own_fetch = own & decision.fetched
            rows, versions = planner.expected_versions(batch.unique[own])
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
            planner.count_update(batch, self._first_step + number + 1)
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

    def _write_backs(self, group: int) -> list[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Rows and slots that each trainer writes back with `group`; an evaluation writes nothing back."""
        due = RetiredRows()
        for number in [number for number in self._unwritten if number <= group]:
            due.extend(self._unwritten.pop(number))
        if not due.rows or not self._training:
            return [(_NO_ROWS, _NO_SLOTS)] * self._planner.trainers
        rows, slots, writers = (np.concatenate(parts) for parts in (due.rows, due.slots, due.writers))
        return [(rows[writers == trainer], slots[writers == trainer]) for trainer in range(self._planner.trainers)]
