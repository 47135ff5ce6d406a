"""Rows on one hop: all that a trainer sends to and takes in from the trainers of one communicator, by one call."""

from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.requests import Awaited, SpentRequests
from bagpipe_hpc.mpi.waiting import TESTS_A_WAKE
from bagpipe_hpc.plan.grid_hops import Layout


class Hop:
    """Rows that are on their way between the trainers of a communicator, all in one `MPI_Ialltoallv`.

    Collective over: the communicator, in one order.

    Args:
        comm: of the trainers.
        rows: what is sent, `[N, W]`, left alone until the hop is over.
        to: what is for each of them.
        into: takes rows in, `[M, W]`.
        source: where those of each go.
        spent: takes the request when it is complete.

    Attributes:
        into: as given.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        rows: NDArray[Any],
        to: Layout,
        into: NDArray[Any],
        source: Layout,
        spent: SpentRequests,
    ) -> None:
        self.into = into
        self._rows = rows
        self._request = comm.Ialltoallv((rows, to), (into, source))
        self._spent = spent
        self._is_over = False

    def is_over(self) -> bool:
        """Whether all rows have come, and this trainer's have left: tested several times over, but never waited for.

        One thread at a time may ask (MPI 4.1, section 11.6.2).
        """
        self._is_over = self._is_over or any(self._spent.is_over(self._request) for _ in range(TESTS_A_WAKE))
        return self._is_over

    def awaited(self) -> Awaited:
        """What ends it; for the thread that frees what is spent."""
        return () if self._is_over else (self._request,)
