"""Rows between trainers: gradients on their way home, and copies on their way to those who read them.

Plans say how many rows go from whom to whom, so nothing is asked and nothing is announced. Rows to one trainer are one
message; there is none where there are no rows. Messages of one kind between two trainers come in the order in which
they are sent (MPI 4.1, section 3.5), so a kind is a tag, and each kind is sent by one thread and received by one.
"""

import threading
from collections import deque
from enum import IntEnum
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.transfer import TESTS_A_WAKE
from bagpipe_hpc.plan.exchange import Counts, pieces


class Kind(IntEnum):
    """What a message holds."""

    NOW_GRADIENTS = 0
    LATER_GRADIENTS = 1
    NEXT_COPIES = 2
    REST_COPIES = 3


class Arrival:
    """Rows that are on their way to this trainer.

    Args:
        rows: where they arrive, one sender's behind the other's.
        requests: of the messages.

    Attributes:
        rows: as given.
    """

    def __init__(self, rows: NDArray[Any], requests: list[MPI.Request]) -> None:
        self.rows = rows
        self._requests = requests

    def is_complete(self) -> bool:
        """Whether all have come; asked several times over, but never waited for."""
        if self._requests and any(MPI.Request.Testall(self._requests) for _ in range(TESTS_A_WAKE)):
            self._requests = []
        return not self._requests


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

    @property
    def trainer(self) -> int:
        """Number of this trainer."""
        return self._own

    def send(self, kind: Kind, group: int, rows: NDArray[Any], counts: Counts) -> None:
        """Start to send rows.

        Args:
            kind: what they are.
            group: of tables.
            rows: `[N, W]`, left alone from now on: those for the first trainer first.
            counts: how many each trainer gets, `[T]`; this one's own are left alone.
        """
        messages = [
            (self._comm.Isend(rows[piece], dest=trainer, tag=_tag(kind, group)), rows)
            for trainer, piece in self._others(counts)
        ]
        with self._lock:
            self._sent.extend(messages)
            while self._sent and self._sent[0][0].Test():
                self._sent.popleft()

    def receive(self, kind: Kind, group: int, rows: NDArray[Any], counts: Counts) -> Arrival:
        """Start to receive what others `send`.

        Args:
            kind: what they are.
            group: of tables.
            rows: takes them, `[N, W]`: those of the first trainer first.
            counts: how many are of each trainer, `[T]`; the place of this one's own is left as it is.
        """
        requests = [
            self._comm.Irecv(rows[piece], source=trainer, tag=_tag(kind, group))
            for trainer, piece in self._others(counts)
        ]
        return Arrival(rows, requests)

    def _others(self, counts: Counts) -> list[tuple[int, slice]]:
        """The other trainers with any rows, and where theirs are."""
        found = enumerate(pieces(counts))
        return [(trainer, piece) for trainer, piece in found if trainer != self._own and piece.start < piece.stop]

    @property
    def has_sent_all(self) -> bool:
        """Whether all that was sent is on its way, so that its memory may go. Never waits."""
        with self._lock:
            while self._sent and self._sent[0][0].Test():
                self._sent.popleft()
            return not self._sent


def _tag(kind: Kind, group: int) -> int:
    return group * len(Kind) + kind
