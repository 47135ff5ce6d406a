"""Rows on their second hop over a grid: messages between a trainer and the others of its column.

A message for each other trainer, and not one collective call for all: so what is for the first one is under way while
rows for the next are put in order. All trainers pass the rows of a kind on in the order of its exchanges, and one
thread at a time does (`RowExchange.pass_on`). So messages of one sender come in that order (MPI 4.1, section 3.5), and
none needs a number.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.native_calls import HANDLE_BYTES, address_of, handle_of
from bagpipe_hpc.mpi.requests import Awaited, SpentRequests
from bagpipe_hpc.mpi.waiting import TESTS_A_WAKE
from bagpipe_hpc.plan.grid_hops import MessagesByAddress

log = logging.getLogger(__name__)

_TAG = 0


def messages_by_address(comm: MPI.Comm) -> MessagesByAddress | None:
    """How native code begins messages on the communicator of a column; None where MPI's functions are not found."""
    isend, irecv = address_of("MPI_Isend"), address_of("MPI_Irecv")
    if isend is None or irecv is None:
        log.info("grid_hops: MPI_Isend and MPI_Irecv were not found; rows are passed on from Python")
        return None
    ranks = np.arange(comm.Get_size(), dtype=np.int32)
    return MessagesByAddress(isend, irecv, HANDLE_BYTES, handle_of(comm), handle_of(MPI.BYTE), _TAG, ranks)


class ColumnMessages:
    """The messages of one exchange, each way; a `Column` of `plan/grid_hops.py` while they begin, a hop then.

    Args:
        comm: of the trainers of the column, for second hops of one kind alone.
        by_address: how native code begins them.
        passed: what this trainer passes on, kept until it has gone.
        spent: takes requests that are complete.

    Attributes:
        by_address: as given.
    """

    def __init__(
        self, comm: MPI.Comm, by_address: MessagesByAddress | None, passed: NDArray[Any], spent: SpentRequests
    ) -> None:
        self.by_address = by_address
        self._comm = comm
        self._passed = passed
        self._spent = spent
        self._left: list[MPI.Request] = []

    def take(self, row: int, rows: NDArray[Any]) -> None:
        """See `Column`."""
        self._left.append(self._comm.Irecv(rows, row, _TAG))

    def send(self, row: int, rows: NDArray[Any]) -> None:
        """See `Column`."""
        self._left.append(self._comm.Isend(rows, row, _TAG))

    def began(self, handles: NDArray[np.int64], failure: int) -> None:
        """See `Column`."""
        from_handle: Callable[[int], MPI.Request] = MPI.Request.fromhandle
        self._left += map(from_handle, handles.tolist())
        if failure:
            raise MPI.Exception(failure)

    def is_over(self) -> bool:
        """Whether all rows have come, and this trainer's have left: tested several times over, but never waited for.

        One thread at a time may ask (MPI 4.1, section 11.6.2).
        """
        return any(self._are_over() for _ in range(TESTS_A_WAKE))

    def _are_over(self) -> bool:
        while self._left and self._spent.is_over(self._left[-1]):
            self._left.pop()
        return not self._left

    def awaited(self) -> Awaited:
        """What ends them; for the thread that frees what is spent."""
        return tuple(self._left)
