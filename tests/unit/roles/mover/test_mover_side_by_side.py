"""A mover has two gets and two puts under way, these also beside a barrier; batches and groups keep their order."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.plan.batch_plan import ReceivedPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.roles.mover.mover import Mover, MoverSettings
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.step.ready_batch import NO_INPUTS
from bagpipe_hpc.step.slice_reader import SliceSamples
from bagpipe_hpc.telemetry.trace import Trace
from tests.eventually import eventually
from tests.unit.roles.mover.rows_at_once import NothingAwaited, NothingToSum, RowsAtOnce
from tests.unit.roles.mover.test_mover_order import (
    NO_ROWS,
    NO_SLOTS,
    WIDTH,
    RecordingCache,
    RecordingDevice,
    Rows,
    mover_parts,
    received,
)


class ShutBarrier(NothingAwaited):
    """A barrier to which the others come when the test says so; as often as it does."""

    def __init__(self) -> None:
        self.groups: list[str] = []
        self.opened = 0
        self.is_entered = False

    def enter(self, what: str) -> None:
        assert not self.is_entered, "one barrier at a time"
        self.groups.append(what.partition(" after")[0])
        self.is_entered = True

    def poll(self) -> bool:
        if not self.is_entered or len(self.groups) > self.opened:
            return False
        self.is_entered = False
        return True


class OnTheWay(NothingAwaited):
    """A get or a put whose rows are here when the test says so."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.is_here = False

    @property
    def is_complete(self) -> bool:
        return self.is_here

    def advance(self) -> bool:
        return self.is_here


class SlowRows(Rows):
    """A window whose gets are on the way; and puts of any rows, and adds."""

    def __init__(self, device: RecordingDevice) -> None:
        super().__init__(device)
        self.gets: list[OnTheWay] = []
        self.puts: list[OnTheWay] = []
        self.adds: list[OnTheWay] = []

    def start_get(self, rows: np.ndarray, records: np.ndarray) -> Any:
        if not rows.size:
            return super().start_get(rows, records)
        self.gets.append(OnTheWay(rows.size))
        return self.gets[-1]

    def start_put(self, rows: np.ndarray, records: np.ndarray) -> Any:
        if not rows.size:
            return super().start_put(rows, records)
        self.puts.append(OnTheWay(rows.size))
        return self.puts[-1]

    def start_add(self, rows: np.ndarray, records: np.ndarray) -> Any:
        super().start_add(rows, records)
        self.adds.append(OnTheWay(rows.size))
        return self.adds[-1]


def fetching(batch: int, micro_batches: list[int] | None) -> ReceivedPlan:
    """The plan of a batch of two samples that fetches two rows."""
    slots, rows = np.asarray([2 * batch, 2 * batch + 1], np.int32), np.asarray([70, 80]) + batch
    nothing = (NO_SLOTS, NO_ROWS, NO_SLOTS)
    micro = None if micro_batches is None else np.asarray(micro_batches, np.int32)
    return received(
        SharedPlan(batch, 2, 0, 0, 2, 2, NO_SLOTS, slots, rows, slots, NO_ROWS, NO_SLOTS),
        TrainerPlan(np.asarray([1, 0], np.int32), *nothing, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS, micro_batches=micro),
    )


def fetching_mover(group_batches: int, micro_batches: Sequence[list[int] | None]) -> tuple[Mover, SlowRows]:
    """A mover whose plans have these micro-batches, and its rows."""
    device = RecordingDevice()
    settings, plans, _, *parts = mover_parts(device, [], None)
    plans._plans[:1] = [fetching(batch, micro) for batch, micro in enumerate(micro_batches)]
    whole, half = (SliceSamples(np.zeros((n, 1), np.float32), np.zeros(n, np.float32), None, (None,)) for n in (2, 1))
    parts[1].read_parts = lambda _batch, _samples, micro: [whole] if micro is None else [half, half]
    rows = SlowRows(device)
    mover = Mover(
        replace(settings, group_batches=group_batches),
        plans,
        [RowTraffic(rows, RecordingCache(device), WIDTH)],  # type: ignore[arg-type]
        *parts,
        *(Trace(enabled=True), RowsAtOnce(), NothingToSum(), MoverPace(has_core=True)),
    )
    return mover, rows


def test_a_batch_of_several_micro_batches_shares_no_fetch() -> None:
    """Others come in one get where as many are ready: not the fourth with the fifth, nor that with the sixth."""
    mover, rows = fetching_mover(4, [*[None] * 4, [1, 1], None, None])
    mover.start()
    assert eventually(lambda: len(mover._incoming) == 6, 10.0)
    for fetched in ([2] * 2, [2] * 4, [2] * 5, [*[2] * 5, 4]):
        assert eventually(lambda gets=fetched: len(rows.gets) == len(gets), 10.0)
        assert [get.rows for get in rows.gets] == fetched
        for get in rows.gets:
            get.is_here = True
    assert [mover.next_batch().plan.batch for _ in range(8)] == [0, 1, 2, 3, 4, 4, 5, 6]
    last = mover.next_batch()
    assert last.plan.is_closing
    assert last.inputs is NO_INPUTS, "it is no batch that shares the last get"
    mover.retire(last)
    mover.wait_drained()
    mover.join()


def test_a_fetch_takes_the_plans_that_there_are() -> None:
    """Though two batches are ready, and it might take two."""
    mover, rows = fetching_mover(4, [None] * 3)
    plans = mover._receiver._plans  # type: ignore[attr-defined]
    held = [plans.pop() for _ in range(2)]
    mover.start()
    for count in (2, 3):
        assert eventually(lambda n=count: len(rows.gets) == n, 10.0)
        for get in rows.gets:
            get.is_here = True
        assert eventually(lambda n=count: mover._ready.qsize() == n, 10.0)
        plans.append(held.pop())
    assert [mover.next_batch().plan.batch for _ in range(3)] == [0, 1, 2]
    mover.retire(mover.next_batch())
    mover.wait_drained()
    mover.join()


def spans_of(mover: Mover, name: str) -> list[tuple[float, float]]:
    """When each began and ended, in seconds."""
    return [(start_s, end_s) for own, _, start_s, end_s, _ in mover._trace._spans if own == name]


@pytest.mark.parametrize(
    ("group_batches", "micro_batches", "fetches"),
    [(4, [None] * 4, [2, 2, 2, 1]), (1, [None] * 3, [1, 1, 1]), (4, [None, [1, 1]], [1, 1])],
    ids=["two at a time", "as many batches as a group has", "a batch of two micro-batches alone"],
)
def test_fetches_are_under_way_side_by_side(
    group_batches: int, micro_batches: list[list[int] | None], fetches: list[int]
) -> None:
    """Their batches come in order, whatever rows are here first, and each has its own time.

    Args:
        group_batches: most batches under way.
        micro_batches: of each batch.
        fetches: under way with that of each batch.
    """
    mover, rows = fetching_mover(group_batches, micro_batches)
    mover.start()
    for done, expected in enumerate(fetches):
        assert eventually(lambda n=done + expected: len(rows.gets) == n, 10.0)
        assert not eventually(lambda n=done + expected: len(rows.gets) > n, 0.05)
        for get in rows.gets[done + 1 :]:
            get.is_here = True
        early = 1 if micro_batches[done] else 0
        assert not eventually(lambda n=early: mover._ready.qsize() > n, 0.05), "the first one's are not here yet"
        for get in rows.gets[done + 1 :]:
            get.is_here = False
        rows.gets[done].is_here = True
        for _ in range(1 + early):
            assert mover.next_batch().plan.batch == done
    mover.retire(mover.next_batch())
    mover.wait_drained()
    mover.join()
    spans = spans_of(mover, "fetch")
    assert len(spans) == len(micro_batches)
    assert all(end_s <= next_s < next_end_s for (_, end_s), (next_s, next_end_s) in pairwise(spans))


def leaving(batch: int, *, adds: bool = False) -> ReceivedPlan:
    """The plan of a batch that fetches nothing, and behind which a group of a row is put, and another one added."""
    slots, rows = np.asarray([batch], np.int32), np.asarray([70 + batch])
    added = {"add_rows": rows + 100, "add_slots": slots + 1, "base_slots": slots + 2} if adds else {}
    return received(
        SharedPlan(batch, 2, 0, batch + 1, 0, 0, NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS),
        TrainerPlan(np.asarray([1, 0], np.int32), NO_SLOTS, NO_ROWS, NO_SLOTS, rows, slots, NO_ROWS, NO_SLOTS, **added),
    )


class CountedRounds(MoverPace):
    """Counts the mover's rounds."""

    rounds = 0

    def begin_round(self) -> None:
        self.rounds += 1
        super().begin_round()


class LeavingRows:
    """A mover to which a compute thread has given a group behind each of some batches.

    Args:
        adds: whether rows are added with each.
        writes_apart: whether a group may be put beside the one before.
        adds_rows: whether trainers add to each other's rows.
        at_once: puts that are worth having under way.
        sharing: what other trainers' updates are waited for.
    """

    def __init__(
        self,
        adds: Sequence[bool],
        *,
        writes_apart: bool = True,
        adds_rows: bool = False,
        at_once: int = 2,
        sharing: RowsAtOnce | None = None,
    ) -> None:
        device, self.barrier = RecordingDevice(), ShutBarrier()
        settings, plans, _, _, reader = mover_parts(device, [], None)
        plans._plans[:1] = [leaving(batch, adds=added) for batch, added in enumerate(adds)]
        settings = replace(settings, writes_apart=writes_apart, adds_rows=adds_rows)
        self.rows, self.pace = SlowRows(device), CountedRounds(has_core=True)
        self.rows.most_at_once = at_once
        self.updated: list[list[int]] = []
        noted: Any = SimpleNamespace(add=lambda rows: self.updated.append(rows.tolist()))
        traffic = [RowTraffic(self.rows, RecordingCache(device), WIDTH, noted)]  # type: ignore[arg-type]
        parts = (Trace(enabled=True), sharing or RowsAtOnce(), NothingToSum(), self.pace)
        self.mover = Mover(settings, plans, traffic, self.barrier, reader, *parts)  # type: ignore[arg-type]
        self.mover.start()
        for _ in adds:
            self.mover.retire(self.mover.next_batch())

    def has_come_to(self, puts: int, adds: int = 0, barriers: Sequence[str] = ()) -> bool:
        """Whether so many calls have begun, and these barriers, and nothing else does."""

        def found() -> tuple[int, int, list[str]]:
            return len(self.rows.puts), len(self.rows.adds), self.barrier.groups

        expected = (puts, adds, list(barriers))
        return eventually(lambda: found() == expected, 10.0) and not eventually(lambda: found() != expected, 0.05)

    def is_resting(self) -> bool:
        """Whether the mover goes round no more."""
        rounds = self.pace.rounds
        return not eventually(lambda: self.pace.rounds > rounds + 2, 0.1)

    def spans(self, name: str) -> list[tuple[float, float]]:
        """See `spans_of`."""
        return spans_of(self.mover, name)

    def end(self) -> None:
        """Let everything come, and end the segment."""
        self.barrier.opened = 100
        self.mover.retire(self.mover.next_batch())
        self.mover.wait_drained()
        self.mover.join()


def test_groups_are_put_side_by_side_and_retired_in_order() -> None:
    """Two puts under way, besides a group at whose barrier the others are awaited; it has been put by then."""
    run = LeavingRows([False] * 4)
    assert run.has_come_to(2)
    run.rows.puts[1].is_here = True
    assert run.has_come_to(2), "the first one's rows are not there yet"
    run.rows.puts[0].is_here = True
    assert run.has_come_to(3, barriers=["group 1"])
    run.barrier.opened = 1
    assert run.has_come_to(4, barriers=["group 1", "group 2"])
    run.barrier.opened = 2
    assert run.has_come_to(4, barriers=["group 1", "group 2"]), "the third one's rows are not there yet"
    assert run.mover._write_backs.newest == 2
    for put in run.rows.puts:
        put.is_here = True
    run.end()
    assert run.barrier.groups == [f"group {group}" for group in (1, 2, 3, 4, 1)]
    assert run.updated == [[70], [71], [72], [73], []], "checkpoints hear of each group"


class Delayed(RowsAtOnce):
    """Delayed updates of a batch are made when the test says so."""

    applied = -1

    def advance(self) -> bool:
        return True

    def may_retire(self, plan: ReceivedPlan) -> bool:
        return plan.is_closing or plan.batch <= self.applied


def test_no_group_is_lost_while_another_one_waits_for_its_updates() -> None:
    rows = Delayed()
    run = LeavingRows([False] * 3, sharing=rows)
    assert run.has_come_to(0)
    for batch in range(3):
        rows.applied = batch
        assert run.has_come_to(batch + 1, barriers=[f"group {group}" for group in range(1, batch + 1)])
        run.rows.puts[batch].is_here = True
        run.barrier.opened = batch + 1
    run.end()
    assert run.barrier.groups == [f"group {group}" for group in (1, 2, 3, 1)]


def test_one_put_is_under_way_where_more_gain_nothing() -> None:
    run = LeavingRows([False] * 3, at_once=1)
    assert run.has_come_to(1)
    run.rows.puts[0].is_here = True
    assert run.has_come_to(2, barriers=["group 1"])
    run.rows.puts[1].is_here = True
    assert run.has_come_to(2, barriers=["group 1"])
    run.barrier.opened = 1
    assert run.has_come_to(3, barriers=["group 1", "group 2"])
    run.rows.puts[2].is_here = True
    run.end()


def test_a_put_has_its_own_time_while_the_mover_rests() -> None:
    """Until its rows are there, also while others come to the barrier of the group before."""
    run = LeavingRows([False, False])
    assert run.has_come_to(2)
    assert run.is_resting()
    for number, put in enumerate(run.rows.puts):
        put.is_here = True
        assert eventually(lambda n=number: len(run.spans("write back")) == n + 1, 10.0)
    assert run.has_come_to(2, barriers=["group 1"])
    assert run.is_resting()
    run.end()
    (_, first_end_s), (second_s, second_end_s) = run.spans("write back")
    assert first_end_s == second_s
    barrier_s, barrier_end_s = run.spans("barrier")[0]
    assert first_end_s <= barrier_s < second_end_s < barrier_end_s


@pytest.mark.parametrize("adds", [(True, False), (False, True), (False, False)], ids=["first", "last", "others alone"])
def test_a_group_is_alone_where_its_rows_may_be_those_of_others(adds: tuple[bool, bool]) -> None:
    """As where trainers add to rows of several: each waits for the barrier of the one before.

    Nothing is added before all have come to a barrier, to which who adds nothing comes as well.
    """
    run = LeavingRows(adds, writes_apart=False, adds_rows=True)
    barriers: list[str] = []
    for number, added in enumerate(adds):
        puts, adds_before = number + 1, sum(adds[:number])
        assert run.has_come_to(puts, adds_before, barriers)
        run.rows.puts[number].is_here = True
        barriers.append(f"what comes before additions of group {puts}")
        assert run.has_come_to(puts, adds_before, barriers)
        assert len(run.spans("write back")) == number, "what is added belongs to it"
        run.barrier.opened += 1
        if added:
            assert run.has_come_to(puts, adds_before + 1, barriers)
            run.rows.adds[adds_before].is_here = True
        barriers.append(f"group {puts}")
        assert run.has_come_to(puts, adds_before + added, barriers)
        run.barrier.opened += 1
    run.end()


def test_groups_wait_for_each_other_where_nothing_is_added() -> None:
    run = LeavingRows([False, False], writes_apart=False)
    assert run.has_come_to(1)
    run.rows.puts[0].is_here = True
    assert run.has_come_to(1, 0, ["group 1"])
    run.barrier.opened = 1
    assert run.has_come_to(2, 0, ["group 1"])
    run.rows.puts[1].is_here = True
    run.end()


@pytest.mark.parametrize(("policy", "adds_rows"), [("bagpipe", False), ("herald", False), ("het", True)])
def test_the_policy_says_whether_groups_may_be_put_side_by_side(policy: str, adds_rows: bool) -> None:
    config = SimpleNamespace(policy=SimpleNamespace(name=policy), train=SimpleNamespace(timeout_s=3.0))
    settings = MoverSettings.of(SimpleNamespace(schedule=(), config=config), 5, 3.0)  # type: ignore[arg-type]
    assert settings == MoverSettings((), 5, 3.0, writes_apart=not adds_rows, adds_rows=adds_rows)
