"""The mover turns to the next segment once its order is known: behind some evaluations, when the trainer has told."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.roles.mover.mover import Mover, MoverSettings
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.step.slice_reader import SliceSamples
from bagpipe_hpc.telemetry.trace import Trace
from tests.unit.roles.mover.rows_at_once import NothingToSum, RowsAtOnce
from tests.unit.roles.mover.test_mover_groups import NO_ROWS, NO_SLOTS, Barrier, Cache, Rows, batch, closing

SAMPLES = SliceSamples(np.zeros((2, 1), np.float32), np.zeros(2, np.float32), None, (None,))
HALF = SliceSamples(np.zeros((1, 1), np.float32), np.zeros(1, np.float32), None, (None,))
TRAIN = Segment(SegmentKind.TRAIN, 0, 0, 1, 0, 6, 2, checkpoint=False)
EVALUATE = replace(TRAIN, kind=SegmentKind.EVALUATE)
TIMEOUT_S = 30.0


class Asked(RowsAtOnce):
    """Says when the mover has come round again."""

    def __init__(self) -> None:
        self.rounds = threading.Semaphore(0)

    def advance(self) -> bool:
        self.rounds.release()
        return True


def plans_of(segments: int, micro_batches: int = 1) -> list[ReceivedPlan]:
    """A batch of one micro-batch or of two, and a closing plan each."""
    end = closing()
    own = replace(end.own, write_back_rows=NO_ROWS, write_back_slots=NO_SLOTS)
    last = ReceivedPlan((end._replace(shared=replace(end.shared, batch=1), own=own),))
    first = batch(70)
    if micro_batches == 2:
        first = first._replace(own=replace(first.own, micro_batches=np.asarray([1, 1], np.int32)))
    return [ReceivedPlan((first._replace(shared=replace(first.shared, batch=0)),)), last] * segments


def started(schedule: tuple[Segment, ...], plans: list[ReceivedPlan], begun: list[Segment], rows: Asked) -> Mover:
    """A mover that gets these plans, and notes the segments that it begins."""
    parts: list[Any] = [
        MoverSettings(schedule, 1, timeout_s=TIMEOUT_S, writes_apart=True),
        SimpleNamespace(is_receiving=False, poll=lambda: plans.pop(0) if plans else None, awaited=list),
        [RowTraffic(Rows([], 3, 1), Cache([], 3), 3)],  # type: ignore[arg-type]
        Barrier([]),
        SimpleNamespace(
            start_segment=begun.append,
            read_parts=lambda _batch, _samples, sizes: [SAMPLES] if sizes is None else [HALF] * sizes.size,
        ),
    ]
    mover = Mover(*parts, Trace(enabled=False), rows, NothingToSum(), MoverPace(has_core=True))
    mover.start()
    return mover


def end_segment(mover: Mover, micro_batches: int = 1) -> None:
    """Take the only batch of a segment, and the closing one."""
    for _ in range(micro_batches):
        assert mover.next_batch().plan.batch == 0
    mover.retire(mover.next_batch())
    mover.wait_drained()


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_no_segment_begins_before_its_order_is_known(micro_batches: int) -> None:
    """Nor is an early micro-batch of it read."""
    schedule = (TRAIN, replace(EVALUATE, is_heard=True), TRAIN, EVALUATE, TRAIN)
    plans, begun, rows = plans_of(len(schedule), micro_batches), list[Segment](), Asked()
    mover = started(schedule, plans, begun, rows)
    for _ in schedule[:2]:
        end_segment(mover, micro_batches)
    while rows.rounds.acquire(blocking=False):
        pass
    for _ in range(3):
        assert rows.rounds.acquire(timeout=TIMEOUT_S)
    assert begun == [*schedule[:2]]
    assert mover._ready.empty()
    heard = (Heard(0, 1, 0.5),)
    mover.tell(heard)
    for _ in schedule[2:]:
        end_segment(mover, micro_batches)
    mover.join()
    assert begun == [*schedule[:2], *(replace(segment, heard=heard) for segment in schedule[2:])]


def test_a_segment_may_have_fewer_batches() -> None:
    """Where samples are left out, the next one follows; none does where it has no batch: the run ends there."""
    shorter = replace(TRAIN, batches=3)
    schedule = (TRAIN, shorter, EVALUATE, TRAIN, TRAIN)
    *plans, _, last = plans_of(4)
    ending = ReceivedPlan(tuple(group._replace(shared=replace(group.shared, batch=0)) for group in last.groups))
    begun = list[Segment]()
    mover = started(schedule, [*plans, ending], begun, Asked())
    for _ in schedule[:3]:
        end_segment(mover)
    closing_batch = mover.next_batch()
    assert closing_batch.plan.is_closing
    mover.retire(closing_batch)
    mover.wait_drained()
    mover.join()
    assert begun == [*schedule[:4]]
