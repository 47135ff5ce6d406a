"""A server's part of checkpoints: copy the rows while the trainers stand still, write the copy while they go on."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.checkpointing.copy_buffer import CopyBuffer
from bagpipe_hpc.checkpointing.protocol import Due, SavingSettings, next_checkpoint, wait_for_copies
from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.mpi.checkpoint_channel import receive_updated, report_written
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import Answered, Polls
from bagpipe_hpc.rows.copies import RowCopies
from bagpipe_hpc.rows.disk.array_face import SnapshotRows
from bagpipe_hpc.rows.disk.store import DiskStore
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.rows.updated import flag_bytes, flagged
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.row_file import SelectedRows
from bagpipe_hpc.storage.checkpoints.writer import CheckpointWriter
from bagpipe_hpc.telemetry.trace import Trace

log = logging.getLogger(__name__)

_SHARE_OF_MEMORY = 0.8
"""Part of the free memory that copies may take; the rest is for other programs."""


class SavedGroup(NamedTuple):
    """A group of tables as a server holds it.

    Attributes:
        record: what is stored for a row.
        window: the MPI window that holds its rows here.
        partition: where each row lies.
        store: its rows on disk; None where they are in memory.
    """

    record: RowRecord
    window: RowWindow
    partition: RowPartition
    store: DiskStore | None = None


class _Kept(NamedTuple):
    """Rows of a group that a checkpoint holds.

    Attributes:
        group: the group of tables.
        records: float32 `[rows, saved columns]`.
        positions: where in the server's window they lie, int64 `[rows]`; None where these are all its rows.
    """

    group: SavedGroup
    records: NDArray[np.float32] | SelectedRows | SnapshotRows
    positions: NDArray[np.int64] | None


class ServerCheckpoints:
    """Saves the rows of one server whenever the trainers ask for it.

    Args:
        settings: how the run saves itself.
        groups: the groups of tables.
        comms: this rank's communicators.
        copies: gathers updated rows.
        trace: this rank's timeline.
    """

    def __init__(
        self,
        settings: SavingSettings,
        groups: Sequence[SavedGroup],
        comms: Communicators,
        copies: RowCopies,
        trace: Trace,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._comms = comms
        self._timeout_s = settings.timeout_s
        self._trace = trace
        self._copies = copies
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._buffers = [CopyBuffer(self._room) for _ in groups]
        self._writing: Future[list[FileInfo]] | None = None

    def serve(self, polls: Polls) -> None:
        """Answer trainers and save rows until no other checkpoint comes. Collective over: `comms.store`.

        Args:
            polls: how often to look for requests.

        Raises:
            CheckpointError: a file cannot be written.
            WaitTimeoutError: a trainer did not take part in time.
        """
        while (due := self._next(polls)) is not None:
            for group in self._groups:
                group.window.synchronise()  # every write-back is in, and none comes before the copy is there
            self._save(due)
        self._thread.shutdown()

    def _next(self, polls: Polls) -> Due | None:
        return next_checkpoint(self._comms, self._answer, polls, self._timeout_s)

    def _answer(self) -> Answered:
        """Answer trainers, without waiting, and report files that have been written."""
        answered = max(group.window.answer() for group in self._groups)  # max, unlike any, calls every one
        if self._writing and self._writing.done():
            report_written(self._comms.saving, self._comms.layout.servers, self._writing.result(), self._timeout_s)
            self._writing = None
        return answered

    def _save(self, due: Due) -> None:
        kept, is_free = [], self._settings.copies_rows
        for number, (group, buffer) in enumerate(zip(self._groups, self._buffers, strict=True)):
            positions = None if due.holds_all else self._updated(number)
            records = self._records(due.step, group, buffer, positions)
            is_free = is_free and records is not None
            kept.append(_Kept(group, in_place(group, positions) if records is None else records, positions))
        self._writing = self._thread.submit(self._write, due.step, kept)
        if not is_free:
            self._writing.result()
        del kept, records  # the thread has them, until the files are written
        wait_for_copies(self._comms, self._timeout_s)

    def _records(
        self, step: int, group: SavedGroup, buffer: CopyBuffer, positions: NDArray[np.int64] | None
    ) -> NDArray[np.float32] | SnapshotRows | None:
        """The rows as they are now, even if they change later; None where training must wait until they are written."""
        if group.store is not None:
            group.store.start_snapshot(positions)
            return SnapshotRows(group.store, group.record.saved_width, positions)
        return self._copy(step, group, buffer, positions) if self._settings.copies_rows else None

    def _updated(self, group: int) -> NDArray[np.int64]:
        """Positions of the rows of a group that trainers have written back since the checkpoint before."""
        trainers = range(self._comms.layout.servers, self._comms.layout.servers + self._comms.layout.trainers)
        held = self._groups[group].window.local_rows
        return flagged(receive_updated(self._comms.store, group, trainers, flag_bytes(held), self._timeout_s), held)

    def _room(self) -> int:
        """Bytes that a copy may take beside those of this host's other servers."""
        return int(_SHARE_OF_MEMORY * free_bytes() / len(self._comms.servers_here))

    def _copy(
        self, step: int, group: SavedGroup, buffer: CopyBuffer, positions: NDArray[np.int64] | None
    ) -> NDArray[np.float32] | None:
        """A copy of the rows, float32 `[rows, saved columns]`; None where memory has no room for it."""
        records, saved = group.window.local, group.record.saved_width
        rows, columns = (len(records), saved) if positions is None else (len(positions), records.shape[1])
        copy = buffer.take(rows, columns)
        if copy is None:
            log.warning(
                "checkpoint of step %d: a copy of the rows takes %.1f MB, and %.1f MB are free for it: "
                "training stands still while they are written",
                step,
                rows * columns * records.itemsize / 1e6,
                self._room() / 1e6,
            )
            return None
        with self._trace.span("copy rows", step=step, rows=rows):
            if positions is None:
                np.copyto(copy, records[:, :saved])
            else:
                self._copies.gather(records, positions, copy)
        return copy[:, :saved]

    def _write(self, step: int, kept: Sequence[_Kept]) -> list[FileInfo]:
        since_s = time.perf_counter()
        writer = CheckpointWriter(self._settings.output, step)
        infos = [
            writer.write_rows(
                self._comms.role_rank,
                group.partition,
                records,
                group.record.embedding_dim,
                positions,
                names_width=len(kept) > 1,
            )
            for group, records, positions in kept
        ]
        for group, *_ in kept:
            if group.store is not None:
                group.store.end_snapshot()
        self._trace.add("save", since_s, time.perf_counter(), "checkpoint", step=step)
        return infos


def in_place(group: SavedGroup, positions: NDArray[np.int64] | None) -> NDArray[np.float32] | SelectedRows:
    """The rows themselves, not a copy, float32 `[rows, saved columns]`: they must not change while they are read."""
    saved = group.window.local[:, : group.record.saved_width]
    return saved if positions is None else SelectedRows(saved, positions)
