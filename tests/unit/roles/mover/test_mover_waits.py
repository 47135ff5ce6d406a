"""What a compute thread hears that waits for its mover: its failure, or what is missing; and never too early."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.roles.mover.mover import Mover
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.telemetry.trace import Trace
from tests.eventually import eventually
from tests.unit.roles.mover.rows_at_once import NothingToSum, RowsAtOnce
from tests.unit.roles.mover.test_mover_order import WIDTH, RecordingCache, RecordingDevice, mover_parts
from tests.unit.roles.mover.test_mover_side_by_side import ShutBarrier, SlowRows

TIMEOUT_S = 60.0


def mover_of(rows: SlowRows, barrier: ShutBarrier, device: RecordingDevice, segments: int = 1) -> tuple[Mover, Any]:
    """A mover of a batch that fetches two rows and writes one back, in each segment, and its plans."""
    settings, plans, _, _, reader = mover_parts(device, [4], None)
    plans._plans *= segments
    mover = Mover(
        replace(settings, schedule=settings.schedule * segments, timeout_s=TIMEOUT_S),
        plans,
        [RowTraffic(rows, RecordingCache(device), WIDTH)],  # type: ignore[arg-type]
        barrier,  # type: ignore[arg-type]
        reader,
        *(Trace(enabled=False), RowsAtOnce(), NothingToSum(), MoverPace(has_core=True)),
    )
    return mover, plans


@pytest.fixture
def device() -> RecordingDevice:
    return RecordingDevice()


@pytest.fixture
def rows(device: RecordingDevice) -> SlowRows:
    return SlowRows(device)


@pytest.fixture
def barrier() -> ShutBarrier:
    return ShutBarrier()


@contextmanager
def impatient(mover: Mover) -> Iterator[None]:
    """Who waits in the body does so for a moment."""
    settings = mover._settings
    mover._settings = replace(settings, timeout_s=0.2)
    yield
    mover._settings = settings


def test_whoever_waits_hears_why_the_mover_has_ended(
    rows: SlowRows, barrier: ShutBarrier, device: RecordingDevice
) -> None:
    """Whatever it waits for, and long before its time is over."""
    mover, plans = mover_of(rows, barrier, device)

    def fail() -> None:
        raise RuntimeError("planted failure")

    plans.poll = fail
    mover.start()
    for wait in (mover.next_batch, mover.wait_drained, mover.join, mover.check):
        with pytest.raises(RuntimeError, match="planted failure"):
            wait()


@pytest.mark.parametrize(
    ("plans", "prefetch_after", "missing"),
    [
        (0, 0, r"the next plan of the oracle"),
        (1, 0, r"the rows of the next batch \(0 plans are here, group 0 is retired\)"),
        (1, 1, r"the rows of the next batch \(1 plans are here, group 0 is retired\)"),
        (2, 0, r"the rows of the next batch \(1 plans are here, group 0 is retired\)"),
    ],
    ids=["a plan", "rows", "a group", "rows, and the closing plan is here"],
)
def test_who_waits_for_a_batch_hears_what_is_missing(
    plans: int, prefetch_after: int, missing: str, rows: SlowRows, barrier: ShutBarrier, device: RecordingDevice
) -> None:
    mover, receiver = mover_of(rows, barrier, device)
    first, closing = receiver._plans
    (group,) = first.groups
    first = ReceivedPlan((group._replace(shared=replace(group.shared, prefetch_after=prefetch_after)),))
    receiver._plans = [first, closing][:plans]
    mover.start()
    is_fetched = plans > prefetch_after
    assert eventually(lambda: (len(rows.gets), len(mover._incoming)) == (is_fetched, plans - is_fetched), TIMEOUT_S)
    with impatient(mover), pytest.raises(WaitTimeoutError, match=f"waited 0 s for {missing}"):
        mover.next_batch()


def test_a_segment_is_drained_when_its_own_rows_are_at_the_servers(
    rows: SlowRows, barrier: ShutBarrier, device: RecordingDevice
) -> None:
    """Not when those of the segment before are; who waits for longer than puts and a barrier may take is told."""
    mover, _ = mover_of(rows, barrier, device, segments=2)
    mover.start()
    barrier.opened = 1
    for segment in range(2):
        assert eventually(lambda n=segment: len(rows.gets) > n, TIMEOUT_S)
        rows.gets[segment].is_here = True
        assert mover.next_batch().plan.batch == 0
        mover.retire(mover.next_batch())
        assert eventually(lambda n=segment: len(rows.puts) > n, TIMEOUT_S)
        rows.puts[segment].is_here = True
        if segment == 0:
            mover.wait_drained()
    late = r"waited 0 s for the rows of groups after 0 to be written back"
    with impatient(mover), pytest.raises(WaitTimeoutError, match=late):
        mover.wait_drained()
    barrier.opened = 2
    mover.wait_drained()
    mover.join()
