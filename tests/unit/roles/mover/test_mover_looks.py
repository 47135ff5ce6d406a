"""A mover that has found nothing to do looks for what is under way alone, and misses none of it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import Haste
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.roles.mover.mover import Mover, MoverSettings
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.step.slice_reader import SliceSamples
from bagpipe_hpc.telemetry.trace import Trace
from tests.unit.roles.mover.rows_at_once import RowsAtOnce
from tests.unit.roles.mover.test_mover_groups import Cache, batch, closing

LATE = 200
"""So many looks in vain does something take."""
SAMPLES = SliceSamples(np.zeros((2, 1), np.float32), np.zeros(2, np.float32), None, (None,))


class Looks(MoverPace):
    """Counts rounds, and notes how soon the mover looks again, and what it names."""

    def __init__(self) -> None:
        super().__init__(has_core=True)
        self.rounds = 0
        self.hastes: list[Haste] = []
        self.named: set[Any] = set()

    def begin_round(self) -> None:
        self.rounds += 1
        super().begin_round()

    def rest(self, haste: Haste, awaited: Sequence[Awaited] | None = None) -> bool:
        self.hastes.append(haste)
        self.named.update(what for group in awaited or () for what in group)
        return super().rest(haste)


class Job:
    """A segment of one batch, of which one thing takes many looks.

    Args:
        late: it.
    """

    def __init__(self, late: str) -> None:
        self._left = {late: LATE}
        self.asked: dict[str, int] = {}
        self.plans = [ReceivedPlan((batch(70),)), ReceivedPlan((closing(),))]
        self.pace = Looks()
        self.is_entered = False

    def has_come(self, what: str) -> bool:
        """Asked once more."""
        self.asked[what] = self.asked.get(what, 0) + 1
        self._left[what] = self._left.get(what, 0) - 1
        return self._left[what] < 0

    # The plans.

    @property
    def is_receiving(self) -> bool:
        return False

    def poll_plan(self) -> ReceivedPlan | None:
        """The next one, which the oracle sends behind sums that are under way."""
        if self._left.get("dense", 0) > 0:
            return None
        return self.plans.pop(0) if self.plans and self.has_come("plan") else None

    # The barrier.

    def enter(self, _: str) -> None:
        self.is_entered = True

    def awaited(self) -> list[Any]:
        return [["barrier"]]

    def poll(self) -> bool:
        if not (self.is_entered and self.has_come("barrier")):
            return False
        self.is_entered = False
        return True

    # The rows of servers.

    reads_ahead = False
    most_at_once = 2

    def start_get(self, rows: np.ndarray, records: np.ndarray) -> Any:
        records[:] = rows[:, None]
        return self._under_way("fetch")

    def start_put(self, rows: np.ndarray, records: np.ndarray) -> Any:  # noqa: ARG002
        return self._under_way("write-back")

    def _under_way(self, what: str) -> Any:
        return SimpleNamespace(advance=lambda: self.has_come(what), awaited=lambda: [[what]], is_complete=False)

    # Sums of dense gradients.

    def advance_dense(self) -> Haste:
        return Haste.NONE if self.has_come("dense") else Haste.CALM


class Rows(RowsAtOnce):
    """Copies come, and late updates are made, when they have been moved on often enough."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._came = {"copies": True, "updates": True}

    def expect(self, plan: ReceivedPlan) -> None:  # noqa: ARG002
        self._came["copies"] = False

    def advance(self) -> bool:
        for what, came in self._came.items():
            self._came[what] = came or self._job.has_come(what)
        return not all(self._came.values())

    def awaited(self) -> list[Any]:
        return [[what for what, came in self._came.items() if not came]]

    def is_ready(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        return self._came["copies"]

    def may_retire(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        return self._came["updates"]

    def begin_updates(self) -> None:
        self._came["updates"] = False
        self._job.pace.ring()


@pytest.mark.parametrize(
    ("late", "haste"),
    [
        ("plan", Haste.CALM),
        ("fetch", Haste.SOON),
        ("copies", Haste.SOON),
        ("updates", Haste.SOON),
        ("write-back", Haste.SOON),
        ("barrier", Haste.CALM),
        ("dense", Haste.CALM),
    ],
)
def test_what_takes_long_is_seen_and_nothing_else_asked(late: str, haste: Haste) -> None:
    """A mover that does not look for one of these waits for ever; one that goes round each time takes the cores."""
    job = Job(late)
    rows = Rows(job)
    parts: list[Any] = [
        MoverSettings(
            (Segment(SegmentKind.TRAIN, 0, 0, 1, 0, 2, 2, checkpoint=False),), 1, timeout_s=60.0, writes_apart=True
        ),
        SimpleNamespace(poll=job.poll_plan, is_receiving=job.is_receiving, awaited=lambda: [["plan"]]),
        [RowTraffic(job, Cache([], 3), 3)],  # type: ignore[arg-type]
        job,
        SimpleNamespace(start_segment=lambda _: None, read_parts=lambda *_: [SAMPLES]),
    ]
    mover = Mover(
        *parts,
        Trace(enabled=False),
        rows,
        SimpleNamespace(advance=job.advance_dense, awaited=lambda: [["dense"]]),
        job.pace,
    )
    mover.start()
    mover.next_batch()
    rows.begin_updates()
    mover.retire(mover.next_batch())
    mover.wait_drained()
    mover.join()
    assert late in job.pace.named, "native code does not look for it"
    assert job.asked[late] >= LATE
    assert job.pace.hastes.count(haste) >= LATE // 10, "rows are asked several times a look"
    assert 0 < job.pace.rounds < LATE // 10
