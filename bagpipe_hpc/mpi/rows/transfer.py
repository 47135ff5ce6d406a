"""Rows on their way: what the ways through MPI have in common, and the whole of one call to a `RowWindow`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.patience import Patience
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import TESTS_A_WAKE, wait_until

LONGEST_SLEEP_S = 100e-6
"""Between tests of rows that are on their way."""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class RowTransfer:
    """Rows of one server under way.

    Attributes:
        requests: what has to complete.
        finish: what has to be called then, once.
    """

    requests: Sequence[MPI.Request]
    finish: Callable[[], None] = _nothing


class RowTransfers(Protocol):
    """A way to the rows of servers on other hosts, used by a trainer's mover alone.

    Any gets, and any puts or any adds, may be under way at a server.

    Attributes:
        most_at_once: gets, and puts, that are worth having under way.
    """

    most_at_once: int

    def start_get(self, server: int, offsets: NDArray[np.int32], into: NDArray[np.float32]) -> RowTransfer:
        """Start to read the rows at `offsets [N]` of a server into `into`, float32 `[N, W]`."""

    def start_put(self, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> RowTransfer:
        """Start to write `records`, float32 `[N, W]`, to distinct `offsets [N]` of a server."""

    def start_add(self, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> RowTransfer:
        """Start to add `records`, float32 `[N, W]`, to the rows at `offsets [N]` of a server."""

    def close(self) -> None:
        """Give everything back. Collective over: the ranks that opened it; a barrier must have come before."""


class PendingRows:
    """The rows of one get, put or add.

    Args:
        transfers: their parts at far servers.
        finish: what has to be called when all are there, once.
        what: what is waited for, as the error says it.
        timeout_s: longest time until they are where they belong, from the first `advance` on: a server takes one call
            behind the other, and who has several under way asks for the first.
    """

    def __init__(
        self, transfers: Sequence[RowTransfer], finish: Callable[[], None], what: str, timeout_s: float
    ) -> None:
        self._pending = list(transfers)
        self._requests = [list(transfer.requests) for transfer in transfers]
        self._finish: Callable[[], None] | None = finish
        self._what = what
        self._timeout_s = timeout_s
        self._patience: Patience | None = None

    @property
    def is_complete(self) -> bool:
        """Whether `advance` has seen all rows where they belong."""
        return self._finish is None

    def advance(self) -> bool:
        """Move on, without waiting for other ranks; whether all rows are where they belong.

        Raises:
            WaitTimeoutError: a server did not answer in time.
        """
        if self._finish is None:
            return True
        if self._patience is None:
            self._patience = Patience(self._timeout_s)
        while self._pending:
            if not MPI.Request.Testall(self._requests[-1]):
                if self._patience.is_over():
                    raise WaitTimeoutError.after(self._timeout_s, self._what)
                return False
            self._requests.pop()
            self._pending.pop().finish()
        self._finish()
        self._finish = None
        return True

    def awaited(self) -> list[Awaited]:
        """What `advance` goes on behind."""
        return [self._requests[-1]] if self._requests else []

    def wait(self) -> None:
        """Wait until all rows are where they belong.

        Raises:
            WaitTimeoutError: a server did not answer in time.
        """
        wait_until(lambda: advance_any(self), self._what, self._timeout_s, longest_sleep_s=LONGEST_SLEEP_S)


def advance_any(*pending: PendingRows) -> bool:
    """Advance calls as far as one wake takes them; whether one of them is complete, or there is none."""
    return not pending or any(rows.advance() for _ in range(TESTS_A_WAKE) for rows in pending)
