"""With tables of several widths a mover waits for the rows of all: to retire a group, and to hand on a batch."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.plan.batch_plan import GroupPlan, ReceivedPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.roles.mover import mover as mover_module
from bagpipe_hpc.roles.mover import write_backs
from bagpipe_hpc.roles.mover.mover import Mover, MoverSettings
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.step.slice_reader import SliceSamples
from bagpipe_hpc.telemetry.trace import Trace
from tests.unit.roles.mover.rows_at_once import NothingAwaited, NothingToSum, RowsAtOnce

WIDTHS = (3, 2)
NO_SLOTS, NO_ROWS = np.empty(0, np.int32), np.empty(0, np.int64)


class Pending(NothingAwaited):
    """Rows that are where they belong after some tests."""

    def __init__(self, noted: list[str], what: str, tests: int) -> None:
        self._noted, self._what, self._left = noted, what, tests

    @property
    def is_complete(self) -> bool:
        return self._left <= 0

    def advance(self) -> bool:
        self._left -= 1
        if self._left == 0:
            self._noted.append(self._what)
        return self._left <= 0


class Rows:
    """A window; the records that are got are those of the row numbers."""

    reads_ahead = False
    most_at_once = 2

    def __init__(self, noted: list[str], width: int, tests: int) -> None:
        self._noted, self._width, self._tests = noted, width, tests

    def start_get(self, rows: np.ndarray, records: np.ndarray) -> Any:
        records[:] = rows[:, None]
        return Pending(self._noted, f"got rows of {self._width}", self._tests)

    def start_put(self, rows: np.ndarray, records: np.ndarray) -> Any:
        assert records.shape == (rows.size, self._width)
        return Pending(self._noted, f"put rows of {self._width}: {records[:, 0].tolist()}", self._tests)


class Cache:
    """Slots of one width."""

    device = Cpu()

    def __init__(self, noted: list[str], width: int) -> None:
        self._noted = noted
        self.records = np.zeros((8, width), np.float32)
        self.operations = SimpleNamespace(order_look_ups=lambda *_: None)

    def scatter(self, slots: torch.Tensor, records: np.ndarray, _: np.ndarray) -> None:
        self._noted.append(f"kept rows of {records.shape[1]}")
        self.records[slots.numpy()] = records

    def gather_records(self, slots: torch.Tensor) -> np.ndarray:
        return self.records[slots.numpy()]


class Barrier(NothingAwaited):
    def __init__(self, noted: list[str]) -> None:
        self._noted = noted
        self.is_entered = False

    def enter(self, _: str) -> None:
        self._noted.append("barrier")
        self.is_entered = True

    def poll(self) -> bool:
        was_entered, self.is_entered = self.is_entered, False
        return was_entered


def batch(first: int) -> GroupPlan:
    """A group's part of a batch of two samples that fetches two rows from `first` on into slots 4 and 1."""
    slots, rows = np.asarray([4, 1], np.int32), np.asarray([first, first + 1])
    own = TrainerPlan(np.asarray([1, 0], np.int32), NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS)
    return GroupPlan(SharedPlan(0, 2, 0, 0, 2, 2, NO_SLOTS, slots, rows, slots, NO_ROWS, NO_SLOTS), own)


def closing() -> GroupPlan:
    """It writes slot 1 back."""
    own = TrainerPlan(
        NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, np.asarray([5]), np.asarray([1], np.int32), NO_ROWS, NO_SLOTS
    )
    return GroupPlan(SharedPlan(1, 0, 0, 1, 0, 0, NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS), own)


def moved() -> list[str]:
    """What happens in a segment of one batch, whose rows of the second width are on their way for longer."""
    noted: list[str] = []
    plans = [ReceivedPlan((batch(70), batch(20))), ReceivedPlan((closing(), closing()))]
    samples = SliceSamples(np.zeros((2, 1), np.float32), np.zeros(2, np.float32), None, (None, None))
    traffic: list[Any] = [
        RowTraffic(Rows(noted, width, tests), Cache(noted, width), width)  # type: ignore[arg-type]
        for width, tests in zip(WIDTHS, (1, 50), strict=True)
    ]
    parts: list[Any] = [
        MoverSettings(
            (Segment(SegmentKind.TRAIN, 0, 0, 1, 0, 2, 2, checkpoint=False),), 1, timeout_s=10.0, writes_apart=True
        ),
        SimpleNamespace(is_receiving=False, poll=lambda: plans.pop(0) if plans else None, awaited=list),
        traffic,
        Barrier(noted),
        SimpleNamespace(start_segment=lambda _: None, read_parts=lambda *_: [samples]),
    ]
    mover = Mover(*parts, Trace(enabled=False), RowsAtOnce(), NothingToSum(), MoverPace(has_core=True))
    mover.start()
    ready = mover.next_batch()
    noted.append(f"batch with {len(ready.inputs.look_ups)} widths")
    mover.retire(mover.next_batch())
    mover.wait_drained()
    mover.join()
    return noted


def test_a_batch_and_a_group_wait_for_rows_of_all_widths() -> None:
    assert moved() == [
        "got rows of 3",
        "got rows of 2",
        "kept rows of 3",
        "kept rows of 2",
        "batch with 2 widths",
        "put rows of 3: [71.0]",
        "put rows of 2: [21.0]",
        "barrier",
    ]


def test_going_on_with_the_first_rows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule's mutant: whatever is complete first is taken for all."""
    for module in (mover_module, write_backs):
        monkeypatch.setattr(module, "advance_all", lambda pending: any(rows.advance() for rows in pending))
    found = moved()
    assert "got rows of 2" not in found
    assert found.index("barrier") == len(found) - 1
    assert "put rows of 2: [21.0]" not in found
