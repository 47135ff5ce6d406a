"""Rows over a grid: a trainer of the sender's row takes them in, and passes them on within the receiver's column.

A trainer takes in what its row has for its column, one sender's rows behind the other's, puts them into the order of
their receivers, and passes them on. A row is thus copied once on the way, in memory. Where MPI put the parts there, by
a datatype for each sender, a hop took four times as long (benchmarks/notes/2026-11-23-row-exchange.md).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.mpi.requests import Awaited, SpentRequests
from bagpipe_hpc.mpi.rows.column_messages import ColumnMessages
from bagpipe_hpc.mpi.rows.grid_comms import GridComms
from bagpipe_hpc.mpi.rows.hop import Hop
from bagpipe_hpc.plan.exchange import Flow
from bagpipe_hpc.plan.grid_hops import GridHops, MessagesByAddress, passed_rows


class Relay:
    """Rows of one kind and batch on their first hop; one thread at a time may use it.

    Args:
        comms: of the kind.
        by_address: how native code begins the messages of second hops.
        rows: what this trainer sends, `[N, W]`, by the grid's `sending_places`.
        flow: how many rows come, of whom and for whom, over a grid of several rows.
        into: takes in what is for this trainer, `[M, W]`.
        hops: lays them out, and passes rows on.
        spent: takes requests that are complete.

    Attributes:
        second: the second hop, once it has begun; rows are here when it is over.

    Raises:
        ValueError: the numbers of rows contradict each other.
    """

    def __init__(
        self,
        comms: GridComms,
        by_address: MessagesByAddress | None,
        rows: NDArray[Any],
        flow: Flow,
        into: NDArray[Any],
        hops: GridHops,
        spent: SpentRequests,
    ) -> None:
        self.second: ColumnMessages | None = None
        self._begun: ColumnMessages | None = None  # keeps what MPI sends
        self._comms, self._by_address = comms, by_address
        self._flow, self._into, self._hops, self._spent = flow, into, hops, spent
        layout = hops.lay_out(flow, comms.place, rows.shape[1])
        taken = self._room(int(flow.relayed.sum()))
        self._first: Hop | None = Hop(comms.row, rows, layout.to_columns, taken, layout.of_senders, spent)

    def begin_second(self) -> bool:
        """Pass rows on if all have come. Returns whether they have; never waits."""
        first = self._first
        if first is None or not first.is_over():
            return False
        self._first = None  # also where MPI refuses a message: what has begun must not begin again
        passed = self._room(passed_rows(self._flow, self._comms.place))
        self._begun = ColumnMessages(self._comms.column, self._by_address, passed, self._spent)
        self._hops.pass_on(self._flow, self._comms.place, first.into, passed, self._into, self._begun)
        self.second = self._begun
        return True

    def awaited(self) -> list[Awaited]:
        """What the second hop begins behind."""
        first = self._first
        return [first.awaited()] if first else []

    def _room(self, rows: int) -> NDArray[Any]:
        return np.empty((rows, self._into.shape[1]), dtype=self._into.dtype)
