"""Many calls under way at once, little memory, and a disk that does as it likes: the rows stay those of an array."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.errors import FileError
from bagpipe_hpc.kernels.block_file import NativeBlockFile
from bagpipe_hpc.rows.disk.array_face import SnapshotRows
from bagpipe_hpc.rows.disk.block_file import OpenBlockFile
from bagpipe_hpc.rows.disk.layout import BlockLayout
from bagpipe_hpc.rows.disk.store import DiskStore, wait_for
from bagpipe_hpc.rows.store import Use
from tests.unit.rows.disk.fickle_disk import FickleDisk

ROWS = 233
_MOST_CALLS = 9
_STUCK_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("ssd"))


def open_store(folder: str, open_file: OpenBlockFile, width: int, frames: int) -> DiskStore:
    """With memory for so many blocks."""
    layout = BlockLayout.of(ROWS, width, 512)
    store = DiskStore(ROWS, width, layout.bytes_with(frames), folder, open_file, may_be_memory=True)
    assert store.frames == frames
    return store


@dataclass(eq=False)
class Call:
    """Something under way: its steps, the rows that it changes or reads, and what is checked at its end."""

    steps: Iterator[None]
    kind: str = "flush"
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    found: np.ndarray | None = None
    expected: np.ndarray | None = None


class Server:
    """What a server does for many trainers, in random order, beside the array that the rows have to be like.

    Numbers are small integers, so that additions in any order give the same bits.
    """

    def __init__(self, store: DiskStore, seed: int) -> None:
        self.store = store
        self.rng = np.random.default_rng(seed)
        self.table = np.zeros(store.shape, np.float32)
        self.calls: list[Call] = []
        self.used: dict[str, Counter[int]] = {"get": Counter(), "put": Counter(), "add": Counter()}
        self.saving: Future[np.ndarray] | None = None
        self.saved = np.empty(0)

    def run(self, actions: int, pool: ThreadPoolExecutor) -> None:
        deadline = time.monotonic() + _STUCK_S
        doings = [self.start_get, self.start_put, self.start_add, self.announce, self.flush]
        for _ in range(actions):
            if self.rng.random() < 0.25 and len(self.calls) < _MOST_CALLS:
                doings[int(self.rng.integers(len(doings)))]()
            if self.rng.random() < 0.05:
                self.save(pool)
            self.go_on()
        while self.calls or self.saving:
            assert time.monotonic() < deadline, f"stuck: {[call.kind for call in self.calls]}"
            self.go_on()
            time.sleep(0)
        np.testing.assert_array_equal(self.store.read(np.arange(ROWS)), self.table)

    def choose(self, *apart_from: str) -> np.ndarray:
        """Rows that no call of these kinds uses, neighbours or not."""
        if self.rng.random() < 0.5:
            first = int(self.rng.integers(ROWS))
            rows = np.arange(first, min(ROWS, first + 30))
        else:
            rows = self.rng.permutation(ROWS)[: int(self.rng.integers(1, 40))]
        return np.asarray([row for row in rows if not any(self.used[kind][int(row)] for kind in apart_from)], np.int32)

    def records(self, rows: np.ndarray) -> np.ndarray:
        return self.rng.integers(-9, 10, (rows.size, self.store.width)).astype(np.float32)

    def start(self, kind: str, rows: np.ndarray, steps: Iterator[None], *checked: np.ndarray) -> None:
        self.used[kind].update(rows.tolist())
        self.calls.append(Call(steps, kind, rows, *checked))

    def start_get(self) -> None:
        rows = self.choose("put", "add")
        found = np.empty((rows.size, self.store.width), np.float32)
        self.store.begin(0, Use.GET, rows.size)
        self.start("get", rows, self.store.gather(rows, found), found, self.table[rows])

    def start_put(self) -> None:
        rows = self.choose("get", "put", "add")
        records = self.records(rows)
        self.store.begin(1, Use.PUT, rows.size)
        if self.rng.random() < 0.3:
            self.start("put", rows, self.store.set_columns(rows, 2, 9, records[:, 2:9]))
            self.table[rows, 2:9] = records[:, 2:9]
        else:
            self.start("put", rows, self.store.scatter(rows, records))
            self.table[rows] = records

    def start_add(self) -> None:
        """Others may add to the same rows."""
        rows = self.choose("get", "put")
        rows = np.concatenate((rows, rows[:5]))
        records = self.records(rows)
        self.start("add", rows, self.store.add(rows, records))
        np.add.at(self.table, rows, records)

    def announce(self) -> None:
        """Rightly or not."""
        self.store.announce(int(self.rng.integers(2)), list(Use)[int(self.rng.integers(2))], self.choose())

    def flush(self) -> None:
        self.calls.append(Call(self.store.flush()))

    def save(self, pool: ThreadPoolExecutor) -> None:
        """Begin a checkpoint; nothing may be changing then."""
        if self.saving or any(call.kind in ("put", "add") for call in self.calls):
            return
        positions = None if self.rng.random() < 0.5 else np.unique(self.choose()).astype(np.int64)
        self.saved = self.table.copy() if positions is None else self.table[positions]
        self.store.start_snapshot(positions)
        rows = SnapshotRows(self.store, self.store.width, positions)
        step = int(self.rng.integers(1, 50))
        pieces = [slice(first, first + step) for first in range(0, len(self.saved), step)]
        self.saving = pool.submit(lambda: np.concatenate([rows[piece] for piece in pieces] or [self.saved]))

    def go_on(self) -> None:
        """As a server's loop does; calls in random order."""
        for index in self.rng.permutation(len(self.calls))[:3].tolist():
            for _ in range(int(self.rng.integers(1, 4))):
                if next(self.calls[index].steps, self) is self:
                    self.finish(self.calls[index])
                    break
        self.calls = [call for call in self.calls if call.kind != "over"]
        self.store.work()
        if self.saving and self.saving.done():
            np.testing.assert_array_equal(self.saving.result(), self.saved)
            self.store.end_snapshot()
            self.saving = None

    def finish(self, call: Call) -> None:
        if call.found is not None:
            np.testing.assert_array_equal(call.found, call.expected)
        if call.kind != "flush":
            self.used[call.kind].subtract(call.rows.tolist())
        call.kind = "over"


def stress(folder: str, open_file: OpenBlockFile, seed: int, actions: int) -> None:
    width, frames = [(50, 8), (50, 13), (100, 8), (100, 40)][seed % 4]
    store = open_store(folder, open_file, width, frames)
    with ThreadPoolExecutor(1) as pool:
        Server(store, seed).run(actions, pool)
    store.close()


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_those_of_an_array_on_a_fickle_disk(folder: str, seed: int) -> None:
    stress(folder, FickleDisk.opener(seed), seed, 250)


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_those_of_an_array_on_a_true_disk(folder: str, seed: int) -> None:
    stress(folder, NativeBlockFile, seed, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_rows_are_those_of_an_array_for_long(folder: str, seed: int) -> None:
    stress(folder, FickleDisk.opener(seed), seed, 1500)
    stress(folder, NativeBlockFile, seed, 1500)


@pytest.mark.parametrize("fails_after", [0, 7, 60])
def test_a_disk_that_fails_is_said_wherever_somebody_waits(folder: str, fails_after: int) -> None:
    """To the thread that answers trainers, and to the one that writes a checkpoint; nobody waits for ever."""
    store = open_store(folder, FickleDisk.opener(1, fails_after), 50, 8)
    server = Server(store, 1)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(FileError, match=r"block -?\d+ cannot be read \(Input/output error\)"):
            server.run(2000, pool)
        store.start_snapshot()
        writer: Future[Any] = pool.submit(store.read_snapshot, np.arange(ROWS))
        with pytest.raises(FileError, match="cannot be read"):
            writer.result(_STUCK_S)
    with pytest.raises(FileError, match="cannot be read"):
        wait_for(store.flush())
    store.close()
