"""What the ways through MPI have in common: start to move rows of one server, then wait."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.waiting import wait_for_all


@dataclass(frozen=True)
class RowTransfer:
    """Rows of one server under way.

    Attributes:
        requests: what has to complete.
        finish: what has to be called then, once.
    """

    requests: Sequence[MPI.Request]
    finish: Callable[[], None]

    def wait(self, what: str, timeout_s: float) -> None:
        """Wait until the rows are where they belong; arguments and errors as for `waiting.wait_until`."""
        wait_for_all(self.requests, what, timeout_s)
        self.finish()


class RowTransfers(Protocol):
    """A way to the rows of servers on other hosts, used by a trainer's mover alone."""

    def start_get(self, server: int, offsets: NDArray[np.int32], into: NDArray[np.float32]) -> RowTransfer:
        """Start to read the rows at `offsets [N]` of a server into `into`, float32 `[N, W]`."""

    def start_put(self, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> RowTransfer:
        """Start to write `records`, float32 `[N, W]`, to distinct `offsets [N]` of a server."""

    def close(self) -> None:
        """Give everything back. Collective over: the ranks that opened it; a barrier must have come before."""
