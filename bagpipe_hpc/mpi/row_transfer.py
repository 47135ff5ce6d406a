"""What the ways through MPI have in common: start to move rows of one server, then wait."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.waiting import wait_until

_LONGEST_SLEEP_S = 100e-6
TESTS_A_WAKE = 16
"""Tests between two sleeps, at both ends: a test moves a long message on by some 40 kB and no further (MPICH 5.0.2 over
TCP), so with one test a wake the rate would be that of waking up."""


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

    def wait(self, what: str, timeout_s: float) -> None:
        """Wait until the rows are where they belong; arguments and errors as for `waiting.wait_until`."""

        def is_complete() -> bool:
            return any(MPI.Request.Testall(pending) for _ in range(TESTS_A_WAKE))

        pending = list(self.requests)
        wait_until(is_complete, what, timeout_s, longest_sleep_s=_LONGEST_SLEEP_S)
        self.finish()


class RowTransfers(Protocol):
    """A way to the rows of servers on other hosts, used by a trainer's mover alone."""

    def start_get(self, server: int, offsets: NDArray[np.int32], into: NDArray[np.float32]) -> RowTransfer:
        """Start to read the rows at `offsets [N]` of a server into `into`, float32 `[N, W]`."""

    def start_put(self, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> RowTransfer:
        """Start to write `records`, float32 `[N, W]`, to distinct `offsets [N]` of a server."""

    def close(self) -> None:
        """Give everything back. Collective over: the ranks that opened it; a barrier must have come before."""
