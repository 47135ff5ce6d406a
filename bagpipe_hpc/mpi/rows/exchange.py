"""Rows between trainers: gradients on their way home, and copies on their way to those who read them.

Plans say how many rows go from whom to whom, so nothing is asked and nothing is announced. Directly, a trainer sends
and takes in all rows of one kind by one call, `MPI_Ialltoallv`, which costs about half of what messages one by one do.
Over a grid of trainers, rows travel in two hops (`plan/exchange_grid.py`): first within the sender's row, where a
message holds all that is for the trainers of one column, then within that column, where it holds what all of a row send
to one trainer. There is no message then where there are no rows. Both ways rows arrive in the order of their senders.

Each kind has a communicator of its own, and one thread of a trainer exchanges it. MPI matches the collective calls on a
communicator by their order (MPI 4.1, section 6.12), and messages between two trainers with one tag as well (section
3.5). So all trainers must exchange a kind for the same batches and groups in the same order, also where one of them has
nothing to send. They do (`step/home_rows.py` says why). Over a grid a group is a tag; no two trainers share both row
and column, so both hops have the same tags, and a trainer passes on in the order in which it exchanges.

Why nobody waits for ever: a trainer starts to send and to take in at the same moment, and waits for nothing in between.
Passing rows on over a grid needs no more than that, and any thread that comes by does it: the one that waits for rows
itself, and the mover in each of its rounds.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.relay import Message, Relay, have_come
from bagpipe_hpc.plan.exchange import Counts, Flow, Kind, pieces


class Arrival:
    """Rows that are on their way to this trainer; any thread may move them on.

    Args:
        rows: where they arrive, one sender's behind the other's.
        requests: whose end says that they are here, but for those of `relay`.
        sent: what the requests send, kept until then.
        relay: of messages that hold rows for others as well, if there are any.
        pass_on: moves relays on.

    Attributes:
        rows: as given.
    """

    def __init__(
        self,
        rows: NDArray[Any],
        requests: list[MPI.Request],
        sent: NDArray[Any] | None = None,
        relay: Relay | None = None,
        pass_on: Callable[[], None] | None = None,
    ) -> None:
        self.rows = rows
        self._requests = requests
        self._sent = sent
        self._relay = relay
        self._pass_on = pass_on
        self._testing = threading.Lock()  # no request may meet two threads (MPI 4.1, section 11.6.2)

    def is_complete(self) -> bool:
        """Whether all have come, and others' have left; asked several times over, but never waited for.

        Until then it passes on what has come for others, of any kind: these rows may wait for a trainer that waits for
        them.
        """
        if self._relay is None and not self._requests:
            return True
        if self._pass_on is not None:
            self._pass_on()
        if not self._testing.acquire(blocking=False):
            return False
        try:
            if self._relay is not None and self._relay.is_done:
                self._relay = None
            if self._requests and have_come(self._requests):
                self._requests, self._sent = [], None
            return self._relay is None and not self._requests
        finally:
            self._testing.release()


class RowExchange:
    """Exchanges rows with other trainers; two threads may use it, each beginning exchanges of kinds of its own.

    Args:
        comms: of the trainers, for this alone: one for each kind.
    """

    def __init__(self, comms: Sequence[MPI.Comm]) -> None:
        self._comms = dict(zip(Kind, comms, strict=True))
        self._own = comms[0].Get_rank()
        self._lock = threading.Lock()
        self._sent: deque[tuple[MPI.Request, NDArray[Any]]] = deque()
        self._passing = threading.Lock()
        self._relays: dict[tuple[Kind, int], deque[Relay]] = {}

    @property
    def trainer(self) -> int:
        """Number of this trainer."""
        return self._own

    def exchange(self, kind: Kind, group: int, rows: NDArray[Any], flow: Flow, into: NDArray[Any]) -> Arrival:
        """Start to send rows, and to take in what the other trainers send. Collective over: the trainers.

        Args:
            kind: what they are.
            group: of tables.
            rows: `[N, W]`, left alone until they have gone: for other trainers by the grid's `sending_places`.
            flow: how many each of them gets, how many are of each trainer, and how many go on to others.
            into: takes rows in, `[M, W]`: those of the first trainer first; the place of this one's own is left as it
                is.
        """
        if flow.grid.is_direct:
            return self._exchange_directly(self._comms[kind], rows, flow, into)
        arrival = self._receive(kind, group, into, flow)
        self._send(kind, group, rows, flow)
        return arrival

    def _exchange_directly(self, comm: MPI.Comm, rows: NDArray[Any], flow: Flow, into: NDArray[Any]) -> Arrival:
        coming = flow.source.copy()
        coming[self._own] = 0
        width = rows.shape[1]
        sends = rows, (flow.to * width, _starts(flow.to) * width)
        takes = into, (coming * width, _starts(flow.source) * width)
        return Arrival(into, [comm.Ialltoallv(sends, takes)], rows)

    def _send(self, kind: Kind, group: int, rows: NDArray[Any], flow: Flow) -> None:
        """Start to send rows to the trainers of this one's row."""
        row, _ = flow.grid.place(self._own)
        of_columns = pieces(flow.to.reshape(flow.grid).sum(0))
        parts = enumerate((rows[piece] for piece in of_columns), row * flow.grid.columns)
        self._start(kind, group, [(trainer, part) for trainer, part in parts if len(part)])

    def _receive(self, kind: Kind, group: int, rows: NDArray[Any], flow: Flow) -> Arrival:
        """Start to receive rows from this trainer's row, and from its column what others pass on."""
        grid, comm = flow.grid, self._comms[kind]
        row, column = grid.place(self._own)
        relay = Relay(comm, group, rows, flow)
        of_rows = enumerate(pieces(flow.source.reshape(grid).sum(1)))
        requests = [
            comm.Irecv(rows[piece], source=other * grid.columns + column, tag=group)
            for other, piece in of_rows
            if other != row and piece.start < piece.stop
        ]
        with self._lock:
            self._relays.setdefault((kind, group), deque()).append(relay)
        return Arrival(rows, requests, relay=relay, pass_on=self.pass_on)

    def pass_on(self) -> None:
        """Send on what has come for other trainers, of each kind in order. Never waits, for threads neither."""
        if not self._passing.acquire(blocking=False):
            return
        try:
            with self._lock:
                open_relays = tuple(self._relays.items())
            for (kind, group), relays in open_relays:
                while relays and relays[0].have_come():
                    self._start(kind, group, relays[0].messages)
                    relays.popleft().is_done = True
        finally:
            self._passing.release()

    def _start(self, kind: Kind, group: int, messages: list[Message]) -> None:
        started = [(self._comms[kind].Isend(rows, dest=trainer, tag=group), rows) for trainer, rows in messages]
        with self._lock:
            self._sent.extend(started)
            self._forget_sent()

    @property
    def has_sent_all(self) -> bool:
        """Whether all messages over a grid are on their way, so that their memory may go. Never waits."""
        with self._lock:
            self._forget_sent()
            return not self._sent

    def _forget_sent(self) -> None:
        while self._sent and self._sent[0][0].Test():
            self._sent.popleft()


def _starts(counts: Counts) -> Counts:
    """Where each trainer's rows begin, if they lie one behind the other."""
    starts: Counts = counts.cumsum() - counts
    return starts
