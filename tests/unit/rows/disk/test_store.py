"""Rows on disk are those of an array, whatever is read, written, announced and saved in whichever order."""

import ctypes
import mmap
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.kernels.block_file import NativeBlockFile
from bagpipe_hpc.rows.disk.array_face import DiskRows, SnapshotRows
from bagpipe_hpc.rows.disk.block_file import OpenBlockFile, frame_memory
from bagpipe_hpc.rows.disk.layout import BlockLayout, spares
from bagpipe_hpc.rows.disk.store import DiskStore, wait_for
from bagpipe_hpc.rows.store import Use
from tests.drawing import share_of
from tests.unit.rows.disk.small_stores import FILES, ROWS, WIDTH, fill, new_store, records


class Twin:
    """A store, and the array that it has to be like; a checkpoint goes on whenever a call has to wait."""

    def __init__(self, store: DiskStore) -> None:
        self.store = store
        self.table = np.zeros(store.shape, np.float32)
        self.saved: np.ndarray | None = None
        self.unread = np.empty(0, np.int64)

    def finish(self, call: Iterator[None]) -> None:
        for _ in call:
            self.read_on(7)

    def read_on(self, count: int) -> None:
        """Read some more rows of the checkpoint, if one is under way."""
        if self.saved is not None:
            rows, self.unread = self.unread[:count], self.unread[count:]
            np.testing.assert_array_equal(self.store.read_snapshot(rows), self.saved[rows])
            if not self.unread.size:
                self.store.end_snapshot()
                self.saved = None

    def gather(self, rows: np.ndarray, seed: int) -> None:
        found = np.empty((rows.size, self.store.width), np.float32)
        self.store.begin(seed % 2, Use.GET, rows.size)
        self.finish(self.store.gather(rows, found))
        np.testing.assert_array_equal(found, self.table[rows])

    def scatter(self, rows: np.ndarray, seed: int) -> None:
        rows = np.random.default_rng(seed).permutation(np.unique(rows))
        given_records = records(rows.size, seed, self.store.width)
        self.finish(self.store.scatter(rows, given_records))
        self.table[rows] = given_records

    def add(self, rows: np.ndarray, seed: int) -> None:
        given_records = records(rows.size, seed, self.store.width)
        self.finish(self.store.add(rows, given_records))
        for row, record in zip(rows, given_records, strict=True):
            self.table[row] += record

    def set_columns(self, rows: np.ndarray, seed: int) -> None:
        rows = np.unique(rows)
        values = records(rows.size, seed, self.store.width)[:, 3:17]
        self.finish(self.store.set_columns(rows, 3, 17, values))
        self.table[rows, 3:17] = values

    def announce(self, rows: np.ndarray, seed: int) -> None:
        self.store.announce(seed % 2, list(Use)[seed % 3 % 2], rows)
        self.store.work()

    def flush(self, *_: Any) -> None:
        self.finish(self.store.flush())

    def save(self, rows: np.ndarray, seed: int) -> None:
        if self.saved is None:
            positions = np.unique(rows).astype(np.int64) if seed % 2 else None
            self.store.start_snapshot(positions)
            self.saved = self.table.copy()
            self.unread = np.arange(ROWS) if positions is None else positions

    def read(self, _: np.ndarray, seed: int) -> None:
        self.read_on(seed)


calls = st.sampled_from(
    [Twin.gather, Twin.scatter, Twin.add, Twin.set_columns, Twin.announce, Twin.flush, Twin.save, Twin.read]
)
steps = st.lists(st.tuples(calls, st.lists(st.integers(0, ROWS - 1), max_size=60), st.integers(0, 99)), max_size=25)


@FILES
@pytest.mark.parametrize("width", [WIDTH, 100])
@given(steps=steps)
@settings(max_examples=share_of(6), deadline=None)
def test_any_calls_leave_the_rows_of_an_array(folder: str, open_file: OpenBlockFile, width: int, steps: list) -> None:
    """Whatever is announced, rightly or not, and with a checkpoint under way or not; rows begin as zeros."""
    store = new_store(folder, open_file, width=width)
    twin = Twin(store)
    try:
        for call, rows, seed in steps:
            call(twin, np.asarray(rows, np.int32), seed)
        twin.read_on(ROWS)
        twin.gather(np.arange(ROWS), 0)
    finally:
        store.close()


def test_a_flush_leaves_room_for_others(folder: str) -> None:
    """Though all blocks in memory have changed, rows that are not there can be read while it is under way."""
    store = new_store(folder)
    table = fill(store)
    flush = store.flush()
    next(flush)
    for first in range(0, ROWS, 7):
        rows = np.arange(first, min(first + 7, ROWS))
        gather = store.gather(rows, found := np.empty((rows.size, WIDTH), np.float32))
        for pauses, _ in enumerate(gather):
            assert pauses < 10_000
            time.sleep(1e-3)
        np.testing.assert_array_equal(found, table[rows])
    wait_for(flush)
    store.close()


def test_a_checkpoint_in_a_thread_holds_the_rows_of_its_beginning(folder: str) -> None:
    """All rows change three times while another thread reads them; changes wait where there is no room for old ones."""
    store = new_store(folder, NativeBlockFile)
    table = fill(store)
    store.start_snapshot()
    saved = SnapshotRows(store, 35, None)
    pieces = [slice(first, first + 9) for first in range(0, ROWS, 9)]
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(lambda: np.concatenate([saved[piece] for piece in pieces]))
        for turn in range(3):
            wait_for(store.scatter(np.arange(ROWS), table + np.float32(turn)))
        np.testing.assert_array_equal(read.result(), table[:, :35])
    store.end_snapshot()
    np.testing.assert_array_equal(store.read(np.arange(ROWS)), table + np.float32(2))
    store.close()


def test_an_increment_reads_its_rows_alone(store: DiskStore) -> None:
    """The other rows may change without being kept."""
    table = fill(store)
    positions = np.asarray([50, 51, 232])
    store.start_snapshot(positions)
    wait_for(store.scatter(np.setdiff1d(np.arange(100, 200), positions), records(100, 2)))
    wait_for(store.scatter(positions, records(3, 3)))
    saved = SnapshotRows(store, WIDTH, positions)
    assert saved.shape == (3, WIDTH)
    np.testing.assert_array_equal(saved[np.asarray([1, 0])], table[[51, 50]])
    np.testing.assert_array_equal(saved[slice(2, 3)], table[[232]])


def test_the_limit_holds(folder: str) -> None:
    """Of memory, arrays included, and of the page cache, which holds nothing of the file."""
    memory_bytes, rows = 1_000_000, 200_000
    new_store(folder, NativeBlockFile).close()  # what is imported for the first is not counted
    tracemalloc.start()
    store = DiskStore(rows, 17, memory_bytes, folder, NativeBlockFile, may_be_memory=True)
    mapped = store.frames * store.layout.block_bytes
    DiskRows(store)[:] = 1.0
    store.start_snapshot()
    first_rows = np.arange(spares(store.frames)) * store.layout.rows_per_block
    wait_for(store.scatter(first_rows, np.zeros((first_rows.size, 17), np.float32)))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 * memory_bytes < mapped + held < memory_bytes + 50_000
    with mmap.mmap(store._file._descriptor, store.layout.file_bytes) as view:  # type: ignore[attr-defined]
        pages = -(-len(view) // mmap.PAGESIZE)
        cached = (ctypes.c_ubyte * pages)()
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        assert ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(address), len(view), cached) == 0
        assert sum(page & 1 for page in cached) == 0
        del address
    store.close()


def test_memory_that_the_system_does_not_give_is_named() -> None:
    with pytest.raises(CapacityError, match=r"tables.memory_gb: the system does not give .* GB to a server"):
        frame_memory(1 << 50, 512)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_server_may_have_no_rows(folder: str, rows: int) -> None:
    """As where whole tables go to servers, and there are fewer of them."""
    least = BlockLayout.of(rows, WIDTH, 4096).least_bytes
    store = DiskStore(rows, WIDTH, least, folder, may_be_memory=True)
    DiskRows(store)[:] = 3.0
    wait_for(store.flush())
    store.start_snapshot()
    assert store.read_snapshot(np.arange(rows)).tolist() == [[3.0] * WIDTH] * rows
    store.end_snapshot()
    store.close()


def test_a_checkpoint_takes_little_memory_beyond_the_limit(folder: str) -> None:
    """Nothing of the size of the blocks, however many they are, but what is counted of each."""
    store = DiskStore(2_000_000, 100, 40_000_000, folder, NativeBlockFile, may_be_memory=True)
    positions = np.arange(0, 2_000_000, 2)
    for chosen in (None, positions):
        tracemalloc.start()
        store.start_snapshot(chosen)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 6 * store.layout.blocks + (spares(store.frames) + 4096) * 512
        store.end_snapshot()
    store.close()


def test_memory_that_is_too_small_is_named(folder: str) -> None:
    layout = BlockLayout.of(ROWS, WIDTH, 512)
    with pytest.raises(
        CapacityError, match=r"tables.memory_gb: 0.00000\d GB for 233 rows of 200 bytes .* at the least"
    ):
        new_store(folder, memory_bytes=1000)
    new_store(folder, memory_bytes=layout.least_bytes).close()
    with pytest.raises(CapacityError):
        new_store(folder, memory_bytes=layout.least_bytes - 1)


@pytest.mark.parametrize("unit_bytes", [512, 4096])
@pytest.mark.parametrize("width", [1, 9, 17, 65, 129, 1025, 5000])
@pytest.mark.parametrize("rows", [1, 1000, 100_003])
def test_blocks_waste_little_and_hold_all_rows(rows: int, width: int, unit_bytes: int) -> None:
    layout = BlockLayout.of(rows, width, unit_bytes)
    least = 0.5 if layout.rows_per_block == 1 else 0.9
    assert layout.rows_per_block * layout.record_bytes >= least * layout.block_bytes
    assert layout.block_bytes % unit_bytes == 0
    assert layout.blocks * layout.rows_per_block >= rows > (layout.blocks - 1) * layout.rows_per_block
    assert layout.rows_in(np.arange(layout.blocks)).sum() == rows
    for memory_bytes in (layout.least_bytes, layout.least_bytes + 10**6, 2 * layout.file_bytes + 10**6):
        frames = layout.frames_in(memory_bytes)
        assert frames <= layout.blocks
        assert layout.bytes_with(frames) <= memory_bytes


def test_the_face_of_an_array(store: DiskStore) -> None:
    """Slices of slices, steps, columns, numbers of rows, one value for many: as of an array."""
    table, face = np.zeros((ROWS, WIDTH), np.float32), DiskRows(store)
    for target in (table, face):
        target[:] = 1.0
        target[5:50, 3:9] = records(45, 1)[:, 3:9]
        part = target[10:200][::3][:20]
        part[2:4, :7] = records(2, 2)[:, :7]
        part[np.asarray([9, 5]), 30:] = records(2, 3)[:, 30:]
        target[:, :2][::2] = 4.0
        target[:, 50:] = 9.0
    assert (len(face), face.shape) == (ROWS, (ROWS, WIDTH))
    np.testing.assert_array_equal(store.read(np.arange(ROWS)), table)
