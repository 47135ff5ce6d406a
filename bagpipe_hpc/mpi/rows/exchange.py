"""Rows between trainers: gradients on their way home, and copies on their way to those who read them.

Plans say how many rows go from whom to whom, so nothing is asked and nothing is announced. Rows travel directly, or
over a grid of trainers in two hops (`plan/exchange_grid.py`): first within the sender's row, where a message holds all
that is for the trainers of one column, then within that column, where it holds what all of a row send to one trainer.
Both ways they arrive in the order of their senders. There is no message where there are no rows.

Messages of one kind between two trainers come in the order in which they are sent (MPI 4.1, section 3.5), so a kind is
a tag. Each kind is sent by one thread, received by one, and passed on in the order in which a trainer began to receive.
No two trainers share both row and column, so both hops have the same tags.

Why nobody waits for ever: all trainers take part in the same kinds and batches in one order, and send their own rows of
a kind and batch without waiting for others' of the same or of later ones. Passing rows on needs no more than these, and
any thread that comes by does it: the one that waits for rows itself, and the mover in each of its rounds.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.relay import Message, Relay, have_come
from bagpipe_hpc.plan.exchange import Flow, Kind, pieces


class Arrival:
    """Rows that are on their way to this trainer.

    Args:
        rows: where they arrive, one sender's behind the other's.
        requests: of messages that hold nothing else.
        relay: of those that hold rows for others as well, if there are any.
        pass_on: moves relays on.

    Attributes:
        rows: as given.
    """

    def __init__(
        self,
        rows: NDArray[Any],
        requests: list[MPI.Request],
        relay: Relay | None = None,
        pass_on: Callable[[], None] | None = None,
    ) -> None:
        self.rows = rows
        self._requests = requests
        self._relay = relay
        self._pass_on = pass_on

    def is_complete(self) -> bool:
        """Whether all have come, and others' have left; asked several times over, but never waited for."""
        if self._relay is not None and self._pass_on is not None:
            self._pass_on()
            self._relay = None if self._relay.is_done else self._relay
        if have_come(self._requests):
            self._requests = []
        return self._relay is None and not self._requests


class RowExchange:
    """Sends and receives rows of other trainers; two threads may use it, each for kinds of its own.

    Args:
        comm: of the trainers, for this alone.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._own = comm.Get_rank()
        self._lock = threading.Lock()
        self._sent: deque[tuple[MPI.Request, NDArray[Any]]] = deque()
        self._passing = threading.Lock()
        self._relays: dict[int, deque[Relay]] = {}

    @property
    def trainer(self) -> int:
        """Number of this trainer."""
        return self._own

    def send(self, kind: Kind, group: int, rows: NDArray[Any], flow: Flow) -> None:
        """Start to send rows.

        Args:
            kind: what they are.
            group: of tables.
            rows: `[N, W]`, left alone from now on: for other trainers by the grid's `sending_places`.
            flow: how many each of them gets.
        """
        row, _ = flow.grid.place(self._own)
        of_columns = pieces(flow.to.reshape(flow.grid).sum(0))
        parts = enumerate((rows[piece] for piece in of_columns), row * flow.grid.columns)
        self._start(_tag(kind, group), [(trainer, part) for trainer, part in parts if len(part)])

    def receive(self, kind: Kind, group: int, rows: NDArray[Any], flow: Flow) -> Arrival:
        """Start to receive what others `send`.

        Args:
            kind: what they are.
            group: of tables.
            rows: takes them, `[N, W]`: those of the first trainer first; the place of this one's own is left as it is.
            flow: how many are of each trainer, and how many go on to others.
        """
        grid, tag = flow.grid, _tag(kind, group)
        row, column = grid.place(self._own)
        if grid.is_direct:
            messages = [(trainer, piece) for trainer, piece in enumerate(pieces(flow.source)) if trainer != self._own]
            return Arrival(rows, self._receive(tag, rows, messages))
        relay = Relay(self._comm, tag, rows, flow)
        of_rows = enumerate(pieces(flow.source.reshape(grid).sum(1)))
        messages = [(other * grid.columns + column, piece) for other, piece in of_rows if other != row]
        with self._lock:
            self._relays.setdefault(tag, deque()).append(relay)
        return Arrival(rows, self._receive(tag, rows, messages), relay, self.pass_on)

    def _receive(self, tag: int, rows: NDArray[Any], messages: list[tuple[int, slice]]) -> list[MPI.Request]:
        return [
            self._comm.Irecv(rows[piece], source=trainer, tag=tag)
            for trainer, piece in messages
            if piece.start < piece.stop
        ]

    def pass_on(self) -> None:
        """Send on what has come for other trainers, of each kind in order. Never waits, for threads neither."""
        if not self._passing.acquire(blocking=False):
            return
        try:
            with self._lock:
                open_relays = tuple(self._relays.items())
            for tag, relays in open_relays:
                while relays and relays[0].have_come():
                    self._start(tag, relays[0].messages)
                    relays.popleft().is_done = True
        finally:
            self._passing.release()

    def _start(self, tag: int, messages: list[Message]) -> None:
        started = [(self._comm.Isend(rows, dest=trainer, tag=tag), rows) for trainer, rows in messages]
        with self._lock:
            self._sent.extend(started)
            self._forget_sent()

    @property
    def has_sent_all(self) -> bool:
        """Whether all that was sent is on its way, so that its memory may go. Never waits."""
        with self._lock:
            self._forget_sent()
            return not self._sent

    def _forget_sent(self) -> None:
        while self._sent and self._sent[0][0].Test():
            self._sent.popleft()


def _tag(kind: Kind, group: int) -> int:
    return group * len(Kind) + kind
