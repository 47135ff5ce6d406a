"""The first of two hops of rows between trainers: what comes from a trainer's own row, for it and for its column.

A message of a trainer of the row has a part for each trainer of the column. MPI puts each part where it belongs: this
trainer's own among the rows that it takes in, the others into the messages that it will send, in which parts are in the
order of their senders. So no row is copied on the way but by MPI.
"""

from itertools import count
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.transfer import TESTS_A_WAKE
from bagpipe_hpc.plan.exchange import Counts, Flow, pieces

Message = tuple[int, NDArray[Any]]


def have_come(requests: list[MPI.Request]) -> bool:
    """Whether all are complete; tested several times over, but never waited for."""
    return not requests or any(MPI.Request.Testall(requests) for _ in range(TESTS_A_WAKE))


class Relay:
    """Rows of one kind and batch that come to a trainer from its own row of the grid.

    Args:
        comm: of the trainers.
        tag: of the messages.
        rows: takes in what is for this trainer, `[N, W]`: that of the first trainer first.
        flow: how many rows come, of whom and for whom, over a grid of several rows.

    Attributes:
        messages: what goes on to whom, once all have come.
        is_done: whether it has been sent.
    """

    def __init__(self, comm: MPI.Comm, tag: int, rows: NDArray[Any], flow: Flow) -> None:
        self.is_done = False
        self._comm, self._tag = comm, tag
        row, column = flow.grid.place(comm.Get_rank())
        first = row * flow.grid.columns
        starts = np.cumsum(flow.source) - flow.source
        passed = flow.relayed.T.copy()  # [R, C]: for each receiver, of each sender
        passed[row] = 0  # what is for this trainer has arrived
        buffer = np.empty((passed.sum(), *rows.shape[1:]), dtype=rows.dtype)
        receivers = range(column, flow.grid.trainers, flow.grid.columns)
        parts = zip(receivers, (buffer[piece] for piece in pieces(passed.sum(1))), strict=True)
        self.messages: list[Message] = [(receiver, part) for receiver, part in parts if len(part)]
        addresses = MPI.Get_address(buffer) + self._places(passed).T * _row_bytes(buffer)
        addresses[:, row] = MPI.Get_address(rows) + starts[first : first + flow.grid.columns] * _row_bytes(rows)
        self._kept = buffer, rows
        self._requests = [
            self._receive(sender, counts, places)
            for sender, counts, places in zip(count(first), flow.relayed, addresses, strict=False)
            if counts.any()
        ]

    def _places(self, passed: Counts) -> NDArray[np.int64]:
        """Where the rows of each sender for each receiver begin among those that go on: `[R, C]`, as `passed`."""
        places: NDArray[np.int64] = (np.cumsum(passed) - passed.ravel()).reshape(passed.shape)
        return places

    def _receive(self, sender: int, counts: Counts, addresses: NDArray[np.int64]) -> MPI.Request:
        """Start to receive a message of so many rows at each address."""
        rows, _ = self._kept
        numbers = counts * rows.shape[1]
        parts = MPI.Datatype.fromcode(rows.dtype.char).Create_hindexed(numbers.tolist(), addresses.tolist())
        parts.Commit()
        request = self._comm.Irecv([MPI.BOTTOM, 1, parts], source=sender, tag=self._tag)
        parts.Free()  # once the message is here (MPI 4.1, section 5.1.9)
        return request

    def have_come(self) -> bool:
        """Whether all messages are here. Never waits."""
        if have_come(self._requests):
            self._requests = []
        return not self._requests


def _row_bytes(rows: NDArray[Any]) -> int:
    width: int = rows.shape[1]
    return rows.itemsize * width
