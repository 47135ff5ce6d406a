"""A server saves its rows as they were when all had come, whether trainers go on meanwhile or stand still."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.checkpointing import server
from bagpipe_hpc.checkpointing.copy_buffer import CopyBuffer
from bagpipe_hpc.checkpointing.protocol import Due, SavingSettings
from bagpipe_hpc.checkpointing.server import SavedGroup, ServerCheckpoints
from bagpipe_hpc.mpi.waiting import Answered
from bagpipe_hpc.rows.copies import NumpyRowCopies
from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.disk.block_file import PlainBlockFile
from bagpipe_hpc.rows.disk.store import DiskStore
from bagpipe_hpc.rows.updated import mark
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.telemetry.trace import Trace

WIDTH, SAVED = 6, 4
UPDATED = np.array([0, 2, 3])
FREE_BYTES = 1000
"""Room for a copy of 4 rows, and for none of 400."""
GOING_ON_S, STANDING_S = 20.0, 0.1
"""How long a writer waits for trainers that should go on meanwhile, and for those that should not."""


class Window:
    """The rows of a group, in memory."""

    def __init__(self, rows: int, answer: Answered = Answered.NOTHING) -> None:
        self.local = np.arange(rows * WIDTH, dtype=np.float32).reshape(rows, WIDTH)
        self.local_rows = rows
        self.answers = [answer]

    def synchronise(self) -> None:
        self.local += 0.5  # the last write-back

    def answer(self) -> Answered:
        return self.answers.pop()


class Job:
    """A server's groups, and trainers that change every row as soon as they may.

    Args:
        patch: puts the trainers and the files in place of MPI and HDF5.
        rows: of each group.
        store: of the last group.
    """

    def __init__(self, patch: pytest.MonkeyPatch, rows: Sequence[int], store: DiskStore | None = None) -> None:
        self.windows = [Window(own) for own in rows]
        self.store = store
        self.written: list[list[list[float]]] = []
        self.waited_for: list[bool] = []  # for each file, whether the trainers went on before it was written
        self.names_width: set[bool] = set()
        self._goes_on = threading.Event()
        self._wait_s = 0.0
        self._patch = patch
        patch.setattr(server, "free_bytes", lambda: FREE_BYTES)
        patch.setattr(server, "wait_for_copies", lambda *_: self._change_every_row())
        patch.setattr(server, "CheckpointWriter", lambda *_: SimpleNamespace(write_rows=self._write_rows))
        patch.setattr(server, "receive_updated", lambda *_: self._flags())

    def save(self, *, copies_rows: bool, holds_all: bool, wait_s: float) -> ServerCheckpoints:
        """One checkpoint; a file is written when the trainers have gone on, or after a while."""
        self._wait_s = wait_s
        coming = iter([Due(1, holds_all), None])
        self._patch.setattr(server, "next_checkpoint", lambda *_: next(coming))
        checkpoints = self.checkpoints(copies_rows=copies_rows)
        checkpoints.serve(None)  # type: ignore[arg-type]
        checkpoints._thread.shutdown()
        return checkpoints

    def checkpoints(self, *, copies_rows: bool) -> ServerCheckpoints:
        layout = SimpleNamespace(servers=1, trainers=1)
        comms: Any = SimpleNamespace(layout=layout, store=None, saving=None, role_rank=0, servers_here=[0])
        record: Any = SimpleNamespace(saved_width=SAVED, embedding_dim=3)
        stores = [None] * (len(self.windows) - 1) + [self.store]
        pairs: Any = zip(self.windows, stores, strict=True)
        groups = [SavedGroup(record, window, SimpleNamespace(), store) for window, store in pairs]  # type: ignore[arg-type]
        settings = SavingSettings(Path("none"), copies_rows, full_every=2, kept=0, timeout_s=60.0)
        return ServerCheckpoints(settings, groups, comms, NumpyRowCopies(), Trace(enabled=False))

    def _flags(self) -> np.ndarray:
        flags = np.zeros(50, np.uint8)
        mark(flags, UPDATED)
        return flags

    def _change_every_row(self) -> None:
        for window in self.windows:
            window.local[:] = -1
        if self.store:
            DiskRows(self.store)[:] = -1
        self._goes_on.set()

    def _write_rows(self, *arguments: Any, names_width: bool) -> FileInfo:
        self.waited_for.append(self._goes_on.wait(self._wait_s))
        records = arguments[2]
        self.written.append(records[0 : records.shape[0]].tolist())
        self.names_width.add(names_width)
        return FileInfo("rows.h5", 1, "0" * 64)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = DiskStore(4, WIDTH, 1 << 16, str(tmp_path), PlainBlockFile, may_be_memory=True)
    yield made
    made.close()


def rows_of(window: Window, holds_all: bool) -> list[list[float]]:
    """What is to be saved of a group before it changes."""
    rows: list[list[float]] = (window.local + 0.5)[slice(None) if holds_all else UPDATED, :SAVED].tolist()
    return rows


@pytest.mark.parametrize("holds_all", [True, False])
@pytest.mark.parametrize(
    ("rows", "copies_rows", "goes_on"),
    [([4], True, True), ([4], False, False), ([4, 5], True, True), ([400, 4], True, False), ([4, 400], True, False)],
)
def test_rows_are_saved_as_they_were(
    rows: list[int],
    copies_rows: bool,
    goes_on: bool,
    holds_all: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where memory does not hold a copy of any group, trainers stand still until all files are written."""
    job = Job(monkeypatch, rows)
    if not copies_rows:
        monkeypatch.setattr(CopyBuffer, "take", lambda *_: pytest.fail("a copy that nobody wants takes memory"))
    goes_on = goes_on or (copies_rows and not holds_all)  # three updated rows fit
    expected = [rows_of(window, holds_all) for window in job.windows]
    job.save(copies_rows=copies_rows, holds_all=holds_all, wait_s=GOING_ON_S if goes_on else STANDING_S)
    assert job.written == expected
    assert job.waited_for == [goes_on] * len(rows)
    assert job.names_width == {len(rows) > 1}
    assert ("training stands still" in caplog.text) == (copies_rows and not goes_on)


@pytest.mark.parametrize("holds_all", [True, False])
def test_rows_on_disk_are_saved_as_they_were_without_a_copy(
    holds_all: bool, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(monkeypatch, [4, 4], store)
    DiskRows(store)[:] = job.windows[1].local + 0.5
    expected = [rows_of(window, holds_all) for window in job.windows]
    job.windows[1].local = job.windows[1].local[:0]  # nothing of it is in memory
    job.save(copies_rows=True, holds_all=holds_all, wait_s=GOING_ON_S)
    assert job.written == expected
    assert job.waited_for == [True, True]
    assert store._snapshot is None


def test_every_group_is_asked_and_files_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Any] = []
    monkeypatch.setattr(server, "report_written", lambda *arguments: reports.append(arguments[2]))
    job = Job(monkeypatch, [4, 4, 4])
    checkpoints = job.save(copies_rows=True, holds_all=True, wait_s=GOING_ON_S)
    for window, answer in zip(job.windows, (Answered.NOTHING, Answered.MOVED, Answered.WAITING), strict=True):
        window.answers = [Answered.NOTHING, answer]
    assert checkpoints._answer() is Answered.MOVED
    assert checkpoints._answer() is Answered.NOTHING
    assert [len(files) for files in reports] == [3]


def test_nobody_waits_for_files_that_are_not_written_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers are answered meanwhile."""
    checkpoints = Job(monkeypatch, [4]).checkpoints(copies_rows=True)
    unfinished: Any = SimpleNamespace(done=lambda: False, result=lambda: pytest.fail("it waits"))
    checkpoints._writing = unfinished
    assert checkpoints._answer() is Answered.NOTHING


def test_servers_of_a_host_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Job(monkeypatch, [4]).checkpoints(copies_rows=True)
    checkpoints._comms.servers_here = [0, 1]  # type: ignore[misc]
    assert checkpoints._room() == 0.8 * FREE_BYTES / 2


def test_what_memory_lacks_for_a_copy_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(monkeypatch, [100_000])
    monkeypatch.setattr(server, "free_bytes", lambda: 1_500_000)
    job.save(copies_rows=True, holds_all=True, wait_s=STANDING_S)
    assert "checkpoint of step 1: a copy of the rows takes 1.6 MB, and 1.2 MB are free for it" in caplog.text
