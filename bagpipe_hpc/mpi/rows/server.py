"""The row server: answers the messages of trainers which `mpi.rows.client` describes, wherever its rows are.

Each answer is a generator that stops wherever it would have to wait, for a message or for a disk, so one thread serves
all trainers at once and the memory of an answer is bounded.

Legend: `N` rows of one call, `W` float32 numbers of a row's record.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.client import (
    TAG_ADD,
    TAG_AHEAD_GET,
    TAG_AHEAD_PUT,
    TAG_DONE,
    TAG_GET,
    TAG_PUT,
    TAG_ROWS,
    pieces,
)
from bagpipe_hpc.mpi.rows.host_tables import HostTables
from bagpipe_hpc.mpi.waiting import TESTS_A_WAKE, Answered
from bagpipe_hpc.rows.copies import RowCopies
from bagpipe_hpc.rows.store import Places, Records, RowStore, Use

_Write = Callable[[NDArray[np.int32], NDArray[np.float32]], Iterator[None]]
"""Takes offsets `[N]` and records `[N, W]`; is gone through to its end."""

_Turns = defaultdict[int, deque[object]]
"""Calls of each trainer, in their order."""

_MOVING_S = 10e-6
"""A test that takes so long has moved a part of a long message on; where nothing comes it takes 0.2 us on a host, over
TCP 0.5 (AMD EPYC, fourth generation)."""
_PIECES_UNDER_WAY = 3
"""Pieces of an answer that may be in memory at a time."""


class SharedRows:
    """`RowStore` in the memory of this host, where the methods are described; none of them waits.

    Trainers of this host load and store the same rows: `HostTables.synchronise` before rows are read and after they
    were written orders that with the messages.

    Args:
        tables: the memory of this host, with this server's rows.
        copies: how rows are gathered and scattered.
        add: adds records to this server's rows, in a way that goes together with what trainers of this host do.
    """

    def __init__(self, tables: HostTables, copies: RowCopies, add: Callable[[Places, Records], None]) -> None:
        self._tables = tables
        self._copies = copies
        self._add = add

    @property
    def width(self) -> int:
        """Numbers W of a record."""
        return self._tables.record_width

    def gather(self, places: Places, into: Records) -> Iterator[None]:
        """Copy the rows at `places [N]` to `into [N, W]`."""
        self._tables.synchronise()
        self._copies.gather(self._tables.own, places, into)
        return iter(())

    def scatter(self, places: Places, records: Records) -> Iterator[None]:
        """Copy `records [N, W]` to `places [N]`."""
        self._copies.scatter(self._tables.own, places, records)
        self._tables.synchronise()
        return iter(())

    def add(self, places: Places, records: Records) -> Iterator[None]:
        """Add `records [N, W]` to the rows at `places [N]`."""
        self._add(places, records)
        self._tables.synchronise()
        return iter(())

    def announce(self, trainer: int, use: Use, places: Places) -> None:
        """Nothing: all rows are here."""

    def begin(self, trainer: int, use: Use, count: int) -> None:
        """Nothing, as for `announce`."""

    def work(self) -> None:
        """Nothing, as for `announce`."""


class RowServer:
    """Answers requests for the rows of one server.

    Args:
        comm: as given to the trainers' `RowClient`.
        store: the rows.
    """

    def __init__(self, comm: MPI.Intracomm, store: RowStore) -> None:
        self._comm = comm
        self._store = store
        self._answers: list[Iterator[None]] = []
        self._gets: _Turns = defaultdict(deque)
        """Whose pieces are not all on their way."""
        self._writes: _Turns = defaultdict(deque)
        """Puts and adds whose pieces have not all been asked for."""
        self._unanswered: _Turns = defaultdict(deque)
        """Puts and adds that are not all in place."""
        self._notes: defaultdict[tuple[int, Use], deque[object]] = defaultdict(deque)
        """Announcements, of each trainer and use, that have not all come."""
        self._has_moved = False
        self._kinds = (
            (TAG_AHEAD_GET, partial(self._note, Use.GET)),  # first, so that they are seen before what they announce
            (TAG_AHEAD_PUT, partial(self._note, Use.PUT)),
            (TAG_GET, self._send_rows),
            (TAG_PUT, self._put_rows),
            (TAG_ADD, self._add_rows),
        )

    def answer(self) -> Answered:
        """Take new requests and move every answer on, without waiting."""
        self._has_moved = False
        status = MPI.Status()
        is_asked = self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)  # one look at all of them: mostly nothing is there
        for tag, kind in self._kinds if is_asked else ():
            while (message := self._comm.Improbe(MPI.ANY_SOURCE, tag, status)) is not None:
                offsets = np.empty(status.Get_count(MPI.INT32_T), dtype=np.int32)
                self._answers.append(kind(status.Get_source(), offsets, message.Irecv(offsets)))
                self._has_moved = True
        was_busy = bool(self._answers)
        for _ in range(TESTS_A_WAKE if was_busy else 0):
            self._answers = [answer for answer in self._answers if next(answer, self) is None]
        self._store.work()
        if not was_busy:
            return Answered.NOTHING
        return Answered.MOVED if self._has_moved else Answered.WAITING

    def _note(self, use: Use, trainer: int, offsets: NDArray[np.int32], asked: MPI.Request) -> Iterator[None]:
        """Take note of what a trainer announces, in its order; the get or put that it announces may come before it.

        A trainer that computes may not drive its message for long, and others are answered meanwhile.
        """
        notes = self._notes[trainer, use]
        yield from _turn(notes)
        yield from self._until_done(asked)
        self._store.announce(trainer, use, offsets)
        notes.popleft()

    def _send_rows(self, trainer: int, offsets: NDArray[np.int32], asked: MPI.Request) -> Iterator[None]:
        """Answer a get of the rows at `offsets [N]`, once all pieces of the trainer's gets before it are on their way.

        A trainer tells pieces apart by their order alone.
        """
        gets = self._gets[trainer]
        yield from _turn(gets)
        yield from self._until_done(asked)
        self._store.begin(trainer, Use.GET, offsets.size)
        under_way: deque[MPI.Request] = deque()
        for piece in pieces(offsets.size, self._store.width):
            if len(under_way) == _PIECES_UNDER_WAY:
                yield from self._until_done(under_way.popleft())
            records = np.empty((piece.stop - piece.start, self._store.width), dtype=np.float32)
            yield from self._store.gather(offsets[piece], records)
            self._has_moved = True
            under_way.append(self._comm.Isend(records, trainer, TAG_ROWS))
        while len(under_way) > 1:
            yield from self._until_done(under_way.popleft())
        gets.popleft()  # the next one's first piece is gathered while the last of this one is on the link
        for request in under_way:
            yield from self._until_done(request)

    def _put_rows(self, trainer: int, offsets: NDArray[np.int32], asked: MPI.Request) -> Iterator[None]:
        """Answer a put of the rows at `offsets [N]`."""

        def begin() -> None:
            self._store.begin(trainer, Use.PUT, offsets.size)

        yield from self._take_rows(self._store.scatter, trainer, offsets, asked, begin)

    def _add_rows(self, trainer: int, offsets: NDArray[np.int32], asked: MPI.Request) -> Iterator[None]:
        """Answer an add to the rows at `offsets [N]`."""
        yield from self._take_rows(self._store.add, trainer, offsets, asked)

    def _take_rows(
        self,
        write: _Write,
        trainer: int,
        offsets: NDArray[np.int32],
        asked: MPI.Request,
        begin: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Take the records of a put or an add: `write` what has come, piece by piece.

        Its pieces are asked for once all pieces of what the trainer wrote before are, and it is answered once that is:
        server and trainer tell pieces, and answers, apart by their order alone.
        """
        writes, unanswered = self._writes[trainer], self._unanswered[trainer]
        turn = object()
        unanswered.append(turn)
        yield from _turn(writes)
        yield from self._until_done(asked)
        begin()
        under_way: deque[tuple[MPI.Request, NDArray[np.int32], NDArray[np.float32]]] = deque()
        for piece in pieces(offsets.size, self._store.width):
            if len(under_way) == _PIECES_UNDER_WAY:
                yield from self._written(write, *under_way.popleft())
            records = np.empty((piece.stop - piece.start, self._store.width), dtype=np.float32)
            under_way.append((self._comm.Irecv(records, trainer, TAG_ROWS), offsets[piece], records))
        while len(under_way) > 1:
            yield from self._written(write, *under_way.popleft())
        writes.popleft()  # the next one's first pieces come while the last of this one is written
        for last in under_way:
            yield from self._written(write, *last)
        while unanswered[0] is not turn:
            yield
        unanswered.popleft()
        yield from self._until_done(self._comm.Isend(bytearray(), trainer, TAG_DONE))

    def _written(
        self, write: _Write, request: MPI.Request, offsets: NDArray[np.int32], records: NDArray[np.float32]
    ) -> Iterator[None]:
        """Write records once they have been received."""
        yield from self._until_done(request)
        yield from write(offsets, records)
        self._has_moved = True

    def _until_done(self, request: MPI.Request) -> Iterator[None]:
        while not self._is_done(request):
            yield

    def _is_done(self, request: MPI.Request) -> bool:
        """Whether a request is complete; notes whether MPI has moved something on meanwhile."""
        since_s = time.perf_counter()
        is_done = request.Test()
        self._has_moved |= is_done or time.perf_counter() - since_s > _MOVING_S
        return is_done


def _turn(calls: deque[object]) -> Iterator[None]:
    """Take the last place among a trainer's calls, and wait until it is the first."""
    own = object()
    calls.append(own)
    while calls[0] is not own:
        yield
