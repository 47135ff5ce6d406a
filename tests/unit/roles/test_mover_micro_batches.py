"""Early micro-batches reach the compute thread before the rows of their batch are fetched, in the batches' order."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.roles.mover import Mover, MoverSettings
from bagpipe_hpc.roles.mover_pace import MoverPace
from bagpipe_hpc.roles.row_traffic import RowTraffic
from bagpipe_hpc.step.slice_reader import SliceSamples
from bagpipe_hpc.telemetry.trace import Trace
from tests.unit.roles.rows_at_once import NothingToSum, RowsAtOnce
from tests.unit.roles.test_mover_groups import NO_ROWS, NO_SLOTS, Barrier, Cache, Rows, batch, closing

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


def test_early_micro_batches_wait_for_no_rows() -> None:
    """And the last does, as does a batch in one piece before them, which they do not overtake."""
    let_go: list[bool] = []
    end = closing()
    own = replace(end.own, write_back_rows=NO_ROWS, write_back_slots=NO_SLOTS)
    last = ReceivedPlan((end._replace(shared=replace(end.shared, batch=2), own=own),))
    plans = [plan_of(0, 2), plan_of(1, 1, 1), last]
    parts: list[Any] = [
        MoverSettings(
            (Segment(SegmentKind.TRAIN, 0, 0, 2, 0, 4, 2, checkpoint=False),), 1, timeout_s=10.0, writes_apart=True
        ),
        SimpleNamespace(is_receiving=False, poll=lambda: plans.pop(0) if plans else None, awaited=list),
        [RowTraffic(HeldRows(let_go), Cache([], 3), 3)],  # type: ignore[arg-type]
        Barrier([]),
        SimpleNamespace(
            start_segment=lambda _: None,
            read_parts=lambda _batch, _samples, sizes: [SAMPLES] * (1 if sizes is None else sizes.size),
        ),
    ]
    mover = Mover(*parts, Trace(enabled=False), RowsAtOnce(), NothingToSum(), MoverPace(has_core=True))
    mover.start()
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
