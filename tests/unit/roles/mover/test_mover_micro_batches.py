"""Early micro-batches reach the compute thread before the rows of their batch are fetched, in the batches' order."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.roles.mover.mover import Mover, MoverSettings
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.step.slice_reader import SliceSamples
from bagpipe_hpc.telemetry.trace import Trace
from tests.eventually import eventually
from tests.unit.roles.mover.rows_at_once import NothingToSum, RowsAtOnce
from tests.unit.roles.mover.test_mover_groups import NO_ROWS, NO_SLOTS, Barrier, Cache, Rows, batch, closing

SAMPLES = SliceSamples(np.zeros((1, 1), np.float32), np.zeros(1, np.float32), None, (None,))


class HeldRows(Rows):
    """A window whose rows come when they are let go, those of one call at a time."""

    def __init__(self, let_go: list[bool]) -> None:
        super().__init__([], 3, 1)
        self._let_go = let_go

    def start_get(self, rows: np.ndarray, records: np.ndarray) -> Any:
        records[:] = rows[:, None]
        come: list[bool] = []  # and stay: the mover asks several times

        def advance() -> bool:
            if not come and self._let_go:
                come.append(self._let_go.pop())
            return bool(come)

        return SimpleNamespace(advance=advance, awaited=list, is_complete=False)


def plan_of(number: int, *sizes: int) -> ReceivedPlan:
    """Batch `number`, of two samples in micro-batches of these sizes."""
    part = batch(70 + 2 * number)
    own = replace(part.own, micro_batches=np.asarray(sizes, dtype=np.int32)) if len(sizes) > 1 else part.own
    return ReceivedPlan((part._replace(shared=replace(part.shared, batch=number), own=own),))


def closing_plan(batches: int) -> ReceivedPlan:
    """It writes nothing back."""
    end = closing()
    own = replace(end.own, write_back_rows=NO_ROWS, write_back_slots=NO_SLOTS)
    return ReceivedPlan((end._replace(shared=replace(end.shared, batch=batches), own=own),))


def started(plans: list[ReceivedPlan], let_go: list[bool], read: list[int], rows: RowsAtOnce) -> Mover:
    """A mover that gets these plans, and notes which batches it reads."""

    def read_parts(number: int, _: int, sizes: np.ndarray | None) -> list[SliceSamples]:
        read.append(number)
        return [SAMPLES] * (1 if sizes is None else sizes.size)

    parts: list[Any] = [
        MoverSettings(
            (Segment(SegmentKind.TRAIN, 0, 0, 2, 0, 4, 2, checkpoint=False),), 1, timeout_s=10.0, writes_apart=True
        ),
        SimpleNamespace(is_receiving=False, poll=lambda: plans.pop(0) if plans else None, awaited=list),
        [RowTraffic(HeldRows(let_go), Cache([], 3), 3)],  # type: ignore[arg-type]
        Barrier([]),
        SimpleNamespace(start_segment=lambda _: None, read_parts=read_parts),
    ]
    mover = Mover(*parts, Trace(enabled=False), rows, NothingToSum(), MoverPace(has_core=True))
    mover.start()
    return mover


class CountedRounds(RowsAtOnce):
    """Counts how often the mover has looked."""

    rounds = 0

    def advance(self) -> bool:
        self.rounds += 1
        return True


def test_a_batch_whose_rows_may_not_be_fetched_yet_is_read_once() -> None:
    """Its early micro-batch is handed over, however often the mover looks meanwhile."""
    rows, read = CountedRounds(), list[int]()
    (part,) = plan_of(0, 1, 1).groups
    waiting = ReceivedPlan((part._replace(shared=replace(part.shared, prefetch_after=1)),))
    mover = started([waiting, closing_plan(1)], [True], read, rows)
    assert not mover.next_batch().is_last
    looked = rows.rounds
    assert eventually(lambda: rows.rounds > looked + 20, 10.0)
    assert mover._ready.empty()
    mover._write_backs.newest = 1
    mover._pace.ring()
    assert mover.next_batch().is_last
    mover.retire(mover.next_batch())
    mover.wait_drained()
    mover.join()
    assert read == [0]


def test_early_micro_batches_wait_for_no_rows() -> None:
    """And the last does, as does a batch in one piece before them, which they do not overtake."""
    let_go: list[bool] = []
    plans = [plan_of(0, 2), plan_of(1, 1, 1), closing_plan(2)]
    mover = started(plans, let_go, [], RowsAtOnce())
    time.sleep(0.05)
    assert mover._ready.empty()
    let_go.append(True)
    taken = [mover.next_batch(), mover.next_batch()]
    time.sleep(0.05)
    assert mover._ready.empty()
    let_go.append(True)
    taken.append(mover.next_batch())
    assert [(own.plan.batch, own.part, own.is_last) for own in taken] == [(0, 0, True), (1, 0, False), (1, 1, True)]
    assert [own.samples(1, 0).tolist() for own in taken] == [[0, 1], [0], [1]]
    mover.retire(mover.next_batch())
    mover.wait_drained()
    mover.join()
