"""The row server: answers the messages of trainers of other hosts, which `mpi.rows.client` describes.

Each answer is a generator that stops wherever it would have to wait, so one thread serves all trainers at once and the
memory of an answer is bounded.

Legend: `N` rows of one call, `W` float32 numbers of a row's record.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.client import TAG_ADD, TAG_DONE, TAG_GET, TAG_PUT, TAG_ROWS, pieces
from bagpipe_hpc.mpi.rows.host_tables import HostTables
from bagpipe_hpc.mpi.rows.transfer import TESTS_A_WAKE
from bagpipe_hpc.rows.copies import RowCopies

_Write = Callable[[NDArray[np.int32], NDArray[np.float32]], None]
"""Takes offsets `[N]` and records `[N, W]`."""

_PIECES_UNDER_WAY = 3
"""Pieces of an answer that may be in memory at a time."""


class RowServer:
    """Answers requests for the rows of one server.

    Trainers of this host load and store the same rows: `HostTables.synchronise` before rows are read and after they
    were written orders that with the messages.

    Args:
        comm: as given to the trainers' `RowClient`.
        tables: the memory of this host, with this server's rows.
        copies: how rows are gathered and scattered.
        add: adds records to this server's rows, in a way that goes together with what trainers of this host do.
    """

    def __init__(self, comm: MPI.Intracomm, tables: HostTables, copies: RowCopies, add: _Write) -> None:
        self._comm = comm
        self._copies = copies
        self._tables = tables
        self._answers: list[Iterator[None]] = []
        self._kinds = (
            (TAG_GET, self._send_rows),
            (TAG_PUT, partial(self._take_rows, self._store)),
            (TAG_ADD, partial(self._take_rows, add)),
        )

    def answer(self) -> bool:
        """Take new requests and move every answer on, without waiting; whether there is any."""
        status = MPI.Status()
        for tag, kind in self._kinds:
            while (message := self._comm.Improbe(MPI.ANY_SOURCE, tag, status)) is not None:
                offsets = np.empty(status.Get_count(MPI.INT32_T), dtype=np.int32)
                message.Recv(offsets)
                self._answers.append(kind(status.Get_source(), offsets))
        was_busy = bool(self._answers)
        for _ in range(TESTS_A_WAKE if was_busy else 0):
            self._answers = [answer for answer in self._answers if next(answer, self) is None]
        return was_busy

    def _send_rows(self, trainer: int, offsets: NDArray[np.int32]) -> Iterator[None]:
        """Answer a get of the rows at `offsets [N]`."""
        self._tables.synchronise()
        rows = self._tables.own
        under_way: deque[MPI.Request] = deque()
        for piece in pieces(offsets.size, rows.shape[1]):
            if len(under_way) == _PIECES_UNDER_WAY:
                yield from _until_done(under_way.popleft())
            records = np.empty((piece.stop - piece.start, rows.shape[1]), dtype=np.float32)
            self._copies.gather(rows, offsets[piece], records)
            under_way.append(self._comm.Isend(records, trainer, TAG_ROWS))
        for request in under_way:
            yield from _until_done(request)

    def _take_rows(self, write: _Write, trainer: int, offsets: NDArray[np.int32]) -> Iterator[None]:
        """Answer a put or an add of the rows at `offsets [N]`: `write` what has come, piece by piece."""
        rows = self._tables.own
        under_way: deque[tuple[MPI.Request, NDArray[np.int32], NDArray[np.float32]]] = deque()
        for piece in pieces(offsets.size, rows.shape[1]):
            if len(under_way) == _PIECES_UNDER_WAY:
                yield from _written(write, *under_way.popleft())
            records = np.empty((piece.stop - piece.start, rows.shape[1]), dtype=np.float32)
            under_way.append((self._comm.Irecv(records, trainer, TAG_ROWS), offsets[piece], records))
        while under_way:
            yield from _written(write, *under_way.popleft())
        self._tables.synchronise()
        yield from _until_done(self._comm.Isend(bytearray(), trainer, TAG_DONE))

    def _store(self, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> None:
        """Put received records in place."""
        self._copies.scatter(self._tables.own, offsets, records)


def _written(
    write: _Write, request: MPI.Request, offsets: NDArray[np.int32], records: NDArray[np.float32]
) -> Iterator[None]:
    """Write records once they have been received."""
    yield from _until_done(request)
    write(offsets, records)


def _until_done(request: MPI.Request) -> Iterator[None]:
    while not request.Test():
        yield
