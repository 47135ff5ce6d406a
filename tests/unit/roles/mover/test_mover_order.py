"""The mover and the compute thread see each other's work on a device in the right order, whichever device it is."""

import threading
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.mpi.rows.transfer import PendingRows
from bagpipe_hpc.plan.batch_plan import GroupPlan, ReceivedPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.roles.mover.mover import Mover, MoverSettings
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.step.slice_reader import SliceSamples
from bagpipe_hpc.telemetry.trace import Trace
from tests.unit.roles.mover.rows_at_once import NothingAwaited, NothingToSum, RowsAtOnce

WIDTH = 3
NO_SLOTS, NO_ROWS = np.empty(0, np.int32), np.empty(0, np.int64)


class RecordingDevice(Cpu):
    """Notes, in each thread's list, what it gives the device; a mark is its thread and what came before."""

    def __init__(self) -> None:
        self.work: dict[str, list[Any]] = {"compute": [], "mover": []}
        self._made: list[Tensor] = []

    def note(self, what: Any) -> None:
        self.work["mover" if threading.current_thread().name == "mover" else "compute"].append(what)

    def own_stream(self) -> AbstractContextManager[None]:
        @contextmanager
        def noted() -> Any:
            self.note("own stream")
            yield

        return noted()

    def mark(self) -> Any:
        thread = threading.current_thread().name
        return thread, len(self.work["mover" if thread == "mover" else "compute"])

    def to_device(self, array: np.ndarray) -> Tensor:
        self._made.append(super().to_device(array))
        return self._made[-1]

    def follow(self, mark: Any, *tensors: Tensor) -> None:
        assert all(any(tensor is made for made in self._made) for tensor in tensors), "a GPU keeps its own memory alone"
        self.note(("follow", mark, len(tensors)))


class RecordingCache:
    """A cache that notes what is done to it."""

    def __init__(self, device: RecordingDevice) -> None:
        self.device = device
        self.operations = SimpleNamespace(order_look_ups=lambda *_: None)

    def scatter(self, slots: Tensor, records: np.ndarray, rows: np.ndarray) -> None:
        assert records.shape == (slots.numel(), WIDTH)
        assert rows.shape == (slots.numel(),)
        self.device.note(f"scatter {slots.tolist()}")

    def gather_records(self, slots: Tensor) -> np.ndarray:
        self.device.note(f"gather {slots.tolist()}")
        return np.repeat(slots.numpy().astype(np.float32)[:, None] ** 2, WIDTH, axis=1)


class OpenBarrier(NothingAwaited):
    """A barrier of one mover."""

    is_entered = False

    def __init__(self, device: RecordingDevice) -> None:
        self._device = device

    def enter(self, _: str) -> None:
        self._device.note("barrier")
        self.is_entered = True

    def poll(self) -> bool:
        was_entered, self.is_entered = self.is_entered, False
        return was_entered


class Rows:
    """A window whose rows are where they belong at once."""

    reads_ahead = False
    most_at_once = 2

    def __init__(self, device: RecordingDevice) -> None:
        self._device = device
        self._done = PendingRows([], lambda: None, "nothing", 0.0)

    def start_get(self, rows: np.ndarray, records: np.ndarray) -> PendingRows:
        assert records.shape == (rows.size, WIDTH)
        return self._done

    def start_put(self, rows: np.ndarray, records: np.ndarray) -> PendingRows:
        assert records.shape == (rows.size, WIDTH)
        self._device.note("put")
        return PendingRows([], lambda: self._device.note("is put"), "nothing", 0.0)

    def start_add(self, rows: np.ndarray, records: np.ndarray) -> PendingRows:
        assert records.shape == (rows.size, WIDTH)
        assert records.dtype == np.float32
        self._device.note(f"add {records[:, 0].tolist()} to {rows.tolist()}")
        return PendingRows([], lambda: self._device.note("is added"), "nothing", 0.0)


def received(shared: SharedPlan, own: TrainerPlan) -> ReceivedPlan:
    """A plan of one group of tables."""
    return ReceivedPlan((GroupPlan(shared, own),))


class Watched(RowsAtOnce):
    """Says when the mover has moved it on."""

    def __init__(self, advanced: threading.Event) -> None:
        self._advanced = advanced

    def advance(self) -> bool:
        self._advanced.set()
        return False


class Late(RowsAtOnce):
    """Other trainers are slow: copies come, and delayed updates are made, when the test says so."""

    def __init__(self) -> None:
        self.expected: list[int] = []
        self.restarted = threading.Event()
        self.ready, self.updated = threading.Event(), threading.Event()
        self.asked = threading.Semaphore(0)

    def advance(self) -> bool:
        return True

    def expect(self, plan: ReceivedPlan) -> None:
        self.expected.append(plan.batch)

    def is_ready(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        self.asked.release()
        return self.ready.is_set()

    def may_retire(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        self.asked.release()
        return self.updated.is_set()

    def restart(self) -> None:
        self.restarted.set()


class Plans(NothingAwaited):
    """One batch, which is written back, added or dropped with the closing plan.

    Args:
        written_back: slots that are put.
        added: slots whose changes are added, each with its base; the last one in a second round, if there are several.
    """

    def __init__(self, written_back: list[int], added: dict[int, int] | None) -> None:
        slots, rows = np.asarray([4, 1], np.int32), np.asarray([70, 80])
        back = np.asarray(written_back, np.int32)
        nothing = (NO_SLOTS, NO_ROWS, NO_SLOTS)
        additions = {}
        if added is not None:
            additions = {
                "add_rows": np.asarray([*added], np.int64) + 100,
                "add_slots": np.asarray([*added], np.int32),
                "base_slots": np.asarray([*added.values()], np.int32),
            }
            if len(added) > 1:
                additions["add_rounds"] = np.asarray([len(added) - 1, 1], np.int32)
        self._plans = [
            received(
                SharedPlan(0, 2, 0, 0, 2, 2, NO_SLOTS, slots, rows, slots, NO_ROWS, NO_SLOTS),
                TrainerPlan(np.asarray([1, 0], np.int32), *nothing, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS),
            ),
            received(
                SharedPlan(1, 0, 0, 1, 0, 0, NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS),
                TrainerPlan(NO_SLOTS, *nothing, back.astype(np.int64), back, NO_ROWS, NO_SLOTS, **additions),
            ),
        ]

    is_receiving = False

    def poll(self) -> Any:
        return self._plans.pop(0) if self._plans else None


def mover_parts(device: RecordingDevice, written_back: list[int], added: dict[int, int] | None) -> list[Any]:
    """All that a mover is made of but its trace and what it waits for of other trainers."""
    segment = Segment(SegmentKind.TRAIN, 0, 0, 1, 0, 2, 2, checkpoint=False)
    samples = SliceSamples(np.zeros((2, 1), np.float32), np.zeros(2, np.float32), None, (None,))
    return [
        MoverSettings((segment,), group_batches=1, timeout_s=10.0, writes_apart=True, adds_rows=added is not None),
        Plans(written_back, added),
        [RowTraffic(Rows(device), RecordingCache(device), WIDTH)],  # type: ignore[arg-type]
        OpenBarrier(device),
        SimpleNamespace(start_segment=lambda _: None, read_parts=lambda *_: [samples]),
    ]


@pytest.mark.parametrize(
    ("written_back", "added", "noted"),
    [
        ([4, 1], None, ["gather [4, 1]", "put", "is put"]),
        ([], None, ["put", "is put"]),
        (
            [1],
            {4: 3, 7: 5},
            [
                "gather [1]",
                "put",
                "is put",
                "barrier",
                *("gather [4, 3]", "scatter [4]", "scatter [3]", "add [7.0] to [104]", "is added"),
                "barrier",
                *("gather [7, 5]", "scatter [7]", "scatter [5]", "add [24.0] to [107]", "is added"),
            ],
        ),
        ([], {}, ["put", "is put", "barrier", "add [] to []", "is added"]),
    ],
    ids=["written back", "dropped", "put and added in two rounds", "nothing to add"],
)
def test_each_thread_follows_the_other(written_back: list[int], added: dict[int, int] | None, noted: list[str]) -> None:
    """And a trainer comes to the barrier when all that it puts and adds, less the bases, is at the servers.

    Before additions it comes there, too, and between two rounds of them.
    """
    device = RecordingDevice()
    parts = mover_parts(device, written_back, added)
    advanced = threading.Event()
    mover = Mover(*parts, Trace(enabled=False), Watched(advanced), NothingToSum(), MoverPace(has_core=True))  # type: ignore[arg-type]

    device.note("cache made")
    mover.start()
    assert advanced.wait(10.0), "sums go on in the mover's thread"
    batch = mover.next_batch()
    (look_ups,) = batch.inputs.look_ups
    assert torch.equal(look_ups.slots, torch.tensor([4, 1], dtype=torch.int32))
    assert torch.equal(look_ups.positions, torch.tensor([1, 0], dtype=torch.int32))
    device.note("step")
    mover.retire(mover.next_batch())
    mover.wait_drained()
    mover.join()

    main = threading.current_thread().name
    assert device.work == {
        "compute": ["cache made", ("follow", ("mover", 3), 4), "step", ("follow", ("mover", 3), 0)],
        "mover": [
            "own stream",
            ("follow", (main, 1), 0),
            "scatter [4, 1]",
            ("follow", (main, 4), 0),
            *noted,
            "barrier",
        ],
    }


def test_batches_and_rows_that_leave_wait_for_other_trainers() -> None:
    """For copies a batch, for delayed updates the rows of a group."""
    device, rows = RecordingDevice(), Late()
    mover = Mover(
        *mover_parts(device, [4, 1], None), Trace(enabled=False), rows, NothingToSum(), MoverPace(has_core=True)
    )  # type: ignore[arg-type]
    mover.start()
    for _ in range(3):
        assert rows.asked.acquire(timeout=10.0)
    assert mover._ready.empty()
    assert rows.expected == [0]
    rows.ready.set()
    mover.next_batch()
    mover.retire(mover.next_batch())
    for _ in range(3):
        assert rows.asked.acquire(timeout=10.0)
    assert "put" not in device.work["mover"]
    assert not rows.restarted.is_set()
    rows.updated.set()
    mover.wait_drained()
    mover.join()
    assert "put" in device.work["mover"]
    assert rows.restarted.is_set()


def test_who_waits_for_other_trainers_says_so() -> None:
    """And not that the oracle is late: its plan is here, and so are the rows of the servers."""
    settings, *parts = mover_parts(RecordingDevice(), [4, 1], None)
    rows, settings = Late(), replace(settings, timeout_s=0.3)
    mover = Mover(settings, *parts, Trace(enabled=False), rows, NothingToSum(), MoverPace(has_core=True))  # type: ignore[arg-type]
    parts[0]._plans.pop()  # the closing one is still being made
    mover.start()
    with pytest.raises(WaitTimeoutError, match="the other trainers to send copies or gradients of rows"):
        mover.next_batch()
    assert rows.expected == [0]
