"""The rows of a server in a file on its disk, with as many blocks in memory as it may take.

Gathers, scatters and adds are iterators that yield where they would have to wait for the disk. What trainers announce
is read ahead of its use, and stays until then. While a checkpoint is written, blocks that change are kept as they were,
as many as there are spares; once these are taken, changes wait for the checkpoint.

Legend: `N` rows of one call, `W` float32 numbers of a record.
"""

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.additions import distinct_rounds
from bagpipe_hpc.rows.copies import as_items
from bagpipe_hpc.rows.disk.announcements import Announcements
from bagpipe_hpc.rows.disk.block_file import (
    Int64s,
    OpenBlockFile,
    PlainBlockFile,
    frame_memory,
    open_unnamed,
    reserve,
    unit_bytes,
)
from bagpipe_hpc.rows.disk.layout import BlockLayout, spares
from bagpipe_hpc.rows.disk.residency import Claim, Residency
from bagpipe_hpc.rows.disk.snapshot import Snapshot
from bagpipe_hpc.rows.store import Places, Records, Use

_PAUSE_S = 50e-6
_AHEAD_BLOCKS = 256
"""Blocks that are read ahead in one job: enough to keep a disk busy until the next look."""
_AHEAD_JOBS = 2
"""Blocks are read ahead while at most so many jobs are under way, so that what trainers wait for has few before it."""
_FLUSHED_BLOCKS = 1 << 14
_CALL_SHARE = 4
_PROMISED_SHARE = 2
"""A piece of a call may use one part in `_CALL_SHARE` of the memory, blocks that were read ahead one in
`_PROMISED_SHARE`."""


class DiskStore:
    """A `RowStore`, which describes its methods, with its rows in a file.

    One thread answers trainers; another one may read a snapshot meanwhile.

    Args:
        rows: of the server.
        record_width: numbers W of a record.
        memory_bytes: most main memory that the rows may take, with all that is kept about them.
        folder: where the file takes its space.
        open_file: how blocks are moved.
        may_be_memory: whether the folder may lie in main memory, as in tests; `memory_bytes` then limits nothing.

    Raises:
        CapacityError: the memory or the disk is too small.
        ConfigError: the folder's file system does not fit.
        FileError: the folder cannot be written to.
    """

    def __init__(
        self,
        rows: int,
        record_width: int,
        memory_bytes: int,
        folder: str,
        open_file: OpenBlockFile = PlainBlockFile,
        *,
        may_be_memory: bool = False,
    ) -> None:
        self.shape = rows, record_width
        descriptor = open_unnamed(folder, may_be_memory=may_be_memory)
        try:
            self.layout = layout = BlockLayout.of(rows, record_width, unit_bytes(descriptor))
            frames = layout.frames_in(memory_bytes)
            reserve(descriptor, folder, layout.file_bytes)
            self._memory = frame_memory(frames, layout.block_bytes)
            self._file = open_file(descriptor, self._memory, layout.block_bytes, f"rows of this server in {folder}")
        except BaseException:
            os.close(descriptor)
            raise
        self._residency = Residency(layout.blocks, frames)
        self._announcements = Announcements(self._residency)
        self._records = frame_records(self._memory, layout, frames)
        self._snapshot: Snapshot | None = None
        self._lock = threading.Lock()
        self._given = 0
        self._call_blocks = max(1, min(frames // _CALL_SHARE, spares(frames)))
        self.blocks_read = self.blocks_written = 0
        """Blocks that were read from the disk, and written to it, since `count_anew`."""
        self.blocks_ahead = 0
        """Those of `blocks_read` that were read before they were asked for."""

    @property
    def width(self) -> int:
        """Numbers W of a record."""
        return self.shape[1]

    @property
    def frames(self) -> int:
        """Blocks that memory holds."""
        return self._residency.frames

    def gather(self, places: Places, into: Records) -> Iterator[None]:
        """Copy the rows at `places [N]` to `into [N, W]`."""
        items = as_items(into)
        is_whole = self.layout.rows_per_block == 1  # what a trainer gets it puts back, changed
        for piece in self._pieces(places):
            frames, offsets, claim = yield from self._claim(places[piece])
            with self._lock:
                items[piece] = self._records[frames, offsets]
                self._residency.release(claim, come_back=is_whole)

    def scatter(self, places: Places, records: Records) -> Iterator[None]:
        """Copy `records [N, W]` to distinct `places [N]`."""
        items = as_items(records)

        def store(piece: slice, frames: Int64s, offsets: Int64s) -> None:
            self._records[frames, offsets] = items[piece]

        yield from self._change(places, store, overwrites=True)

    def add(self, places: Places, records: Records) -> Iterator[None]:
        """Add `records [N, W]` to the rows at `places [N]`, in their order."""

        def add(piece: slice, frames: Int64s, offsets: Int64s) -> None:
            added = records[piece]
            for chosen in distinct_rounds(np.asarray(places[piece])):
                here = (frames, offsets) if chosen is None else (frames[chosen], offsets[chosen])
                sums = self._records[here].view(np.float32).reshape(-1, self.width)
                sums += added if chosen is None else added[chosen]
                self._records[here] = as_items(sums)

        yield from self._change(places, add)

    def set_columns(self, places: Places, first: int, last: int, values: NDArray[np.float32]) -> Iterator[None]:
        """Set columns `first` up to `last` of the rows at distinct `places [N]` to `values`, `[N, last - first]`."""

        def store(piece: slice, frames: Int64s, offsets: Int64s) -> None:
            records = self._records[frames, offsets].view(np.float32).reshape(-1, self.width)
            records[:, first:last] = values[piece]
            self._records[frames, offsets] = as_items(records)

        yield from self._change(places, store)

    def announce(self, trainer: int, use: Use, places: Places) -> None:
        """Take note of rows that a trainer will use next, to be read ahead."""
        numbers = np.asarray(places, dtype=np.int64) // self.layout.rows_per_block
        blocks, counts = np.unique(numbers, return_counts=True)
        if use is Use.PUT:
            blocks = blocks[counts < self.layout.rows_in(blocks)]  # the others need not be read
        with self._lock:
            self._announcements.add(trainer, use, len(places), blocks)

    def begin(self, trainer: int, use: Use, count: int) -> None:
        """Take note that a trainer uses its next `count` rows now."""
        with self._lock:
            self._announcements.begin(trainer, use, count)

    def work(self) -> None:
        """Read ahead, unless the disk is busy or enough blocks that were read ahead wait for their use."""
        with self._lock:
            while (
                self._given - (done := self._file.done()) <= _AHEAD_JOBS
                and (room := self.frames // _PROMISED_SHARE - self._announcements.promised) > 0
                and (blocks := self._announcements.next_blocks(min(room, _AHEAD_BLOCKS))) is not None
            ):
                claim = self._residency.claim(blocks, done)
                if claim is None:
                    return
                self._announcements.promise(blocks)
                self._residency.release(claim)
                self.blocks_ahead += self._start(claim)

    def flush(self) -> Iterator[None]:
        """Write all blocks that have changed by now, piece by piece, beside other calls; they stay in memory."""
        step = min(_FLUSHED_BLOCKS, self._call_blocks)
        for first in range(0, self.frames, step):
            with self._lock:
                claim = self._residency.claim_changed(first, min(first + step, self.frames))
                self._start(claim)
            yield from self._moved(claim)
            with self._lock:
                self._residency.release(claim)

    def start_snapshot(self, positions: Int64s | None = None) -> None:
        """From now on `read_snapshot` gives the rows as they are now, whatever is changed; one at a time.

        No scatter or add may be under way.

        Args:
            positions: rows that will be read, int64; None for all.
        """
        with self._lock:
            self._snapshot = Snapshot(self.layout, spares(self.frames), positions)

    def end_snapshot(self) -> None:
        """End the snapshot: blocks are no longer kept as they were."""
        with self._lock:
            self._snapshot = None

    def read_snapshot(self, places: Places) -> NDArray[np.float32]:
        """Rows at `places [N]` as they were when the snapshot began, float32 `[N, W]`; each row once.

        Waits for the disk; for any thread.
        """
        found = np.empty((len(places), self.width), dtype=np.float32)
        items = as_items(found)
        for piece in self._pieces(places):
            frames, offsets, claim = wait_for(self._claim(places[piece], stays=False))
            blocks = np.asarray(places[piece], dtype=np.int64) // self.layout.rows_per_block
            with self._lock:
                assert self._snapshot is not None, "a snapshot was started"
                items[piece] = self._records[frames, offsets]
                self._snapshot.read(blocks, offsets, items[piece])
                self._residency.release(claim)
        return found

    def read(self, places: Places) -> NDArray[np.float32]:
        """Rows at `places [N]` as they are, float32 `[N, W]`; waits for the disk."""
        found = np.empty((len(places), self.width), dtype=np.float32)
        wait_for(self.gather(places, found))
        return found

    def count_anew(self) -> None:
        """Begin to count what the disk does."""
        self.blocks_read = self.blocks_written = self.blocks_ahead = 0

    def describe(self) -> str:
        """What is where, for the log."""
        layout, frames = self.layout, self.frames
        return (
            f"rows of {self.width} numbers in {layout.file_bytes / 1e6:.1f} MB on disk, {frames} of {layout.blocks} "
            f"blocks in {layout.bytes_with(frames) / 1e6:.1f} MB of memory"
        )

    def describe_work(self) -> str:
        """What the disk has done, for the log."""
        return (
            f"rows of {self.width} numbers, after the start: {self.blocks_read} blocks of {self.layout.block_bytes} "
            f"bytes were read, {self.blocks_ahead} of them ahead, and {self.blocks_written} written"
        )

    def close(self) -> None:
        """Give file and memory back; nobody may use the rows afterwards."""
        self._file.close()
        del self._records, self._memory  # unmapped once no error holds a piece of it any longer

    def _pieces(self, places: Places) -> Iterator[slice]:
        """A call in pieces whose blocks fit beside those of others."""
        blocks = np.asarray(places) // self.layout.rows_per_block
        turns = np.cumsum(blocks[1:] != blocks[:-1])  # of each row but the first: at most so many blocks come before
        starts = np.searchsorted(turns, np.arange(1, turns[-1:].sum() // self._call_blocks + 1) * self._call_blocks) + 1
        for first, last in pairwise([0, *starts.tolist(), len(places)] if len(places) else []):
            yield slice(first, last)

    def _change(
        self, places: Places, change: Callable[[slice, Int64s, Int64s], None], *, overwrites: bool = False
    ) -> Iterator[None]:
        """Change rows piece by piece, once their blocks are here and, for a snapshot, kept as they are.

        Args:
            places: of the rows.
            change: changes a piece of them, in these frames and at these places in them.
            overwrites: whether places are distinct and rows are replaced as a whole.
        """
        overwrites = overwrites and self._snapshot is None
        for piece in self._pieces(places):
            is_changed = False
            while not is_changed:
                while self._must_wait_for_checkpoint(places[piece]):  # without a claim: its reader claims frames, too
                    yield
                frames, offsets, claim = yield from self._claim(places[piece], overwrites=overwrites)
                with self._lock:
                    if is_changed := self._snapshot is None or self._snapshot.keep(claim, self._records):
                        change(piece, frames, offsets)
                        self._residency.change(claim)
                    self._residency.release(claim)

    def _must_wait_for_checkpoint(self, places: Places) -> bool:
        """Whether blocks of these rows cannot change now, since there is no room to keep them as they were."""
        with self._lock:
            if self._snapshot is None:
                return False
            return not self._snapshot.has_room(np.unique(np.asarray(places) // self.layout.rows_per_block))

    def _claim(
        self, places: Places, *, stays: bool = True, overwrites: bool = False
    ) -> Generator[None, None, tuple[Int64s, Int64s, Claim]]:
        """The frame and the place in it of each row, once it is there, and what to release afterwards."""
        numbers, offsets = np.divmod(np.asarray(places, dtype=np.int64), self.layout.rows_per_block)
        blocks, which, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        is_whole = counts == self.layout.rows_in(blocks) if overwrites else None
        while (claim := self._try_claim(blocks, stays, is_whole)) is None:
            yield
        yield from self._moved(claim)
        return claim.frames[which], offsets, claim

    def _moved(self, claim: Claim) -> Iterator[None]:
        """Go on once nothing moves the blocks of a claim any longer: another call may have begun to write them."""
        while self._file.done() < (job := self._residency.last_job(claim)):
            while self._file.done() < job:
                yield

    def _try_claim(self, blocks: Int64s, stays: bool, is_whole: NDArray[np.bool_] | None) -> Claim | None:
        with self._lock:
            claim = self._residency.claim(blocks, self._file.done(), stays=stays, is_whole=is_whole)
            if claim is not None:
                self._start(claim)
            return claim

    def _start(self, claim: Claim) -> int:
        """Start to move what a claim needs; returns how many blocks are read."""
        if not claim.moved.size:
            return 0
        self._given = self._file.submit(claim.moved, claim.written, claim.read)
        self._residency.fill(claim, self._given)
        read = int(np.count_nonzero((claim.read >= 0) & (claim.read != claim.written)))
        self.blocks_read += read
        self.blocks_written += int(np.count_nonzero(claim.written >= 0))
        return read


def frame_records(memory: Any, layout: BlockLayout, frames: int) -> NDArray[np.void]:
    """The records in so many frames, one item each, `[frames, rows_per_block]`."""
    kind = np.dtype((np.void, layout.record_bytes))
    shape, strides = (frames, layout.rows_per_block), (layout.block_bytes, layout.record_bytes)
    return np.ndarray(shape, kind, memory, strides=strides)


def wait_for(steps: Generator[None, None, Any] | Iterator[None]) -> Any:
    """Go through an iterator to its end, with a pause wherever it would wait; returns what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(_PAUSE_S)
