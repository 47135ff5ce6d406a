"""Rows over a grid: a trainer of the sender's row takes them in, and passes them on within the receiver's column.

A trainer takes in what its row has for its column, one sender's rows behind the other's, puts them into the order of
their receivers, and passes them on. A row is thus copied once on the way, in memory. Where MPI put the parts there, by
a datatype for each sender, a hop took four times as long (benchmarks/notes/2026-11-23-row-exchange.md).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.grid_comms import GridComms
from bagpipe_hpc.mpi.rows.hop import Hop
from bagpipe_hpc.plan.exchange import Counts, Flow, pieces


class Relay:
    """Rows of one kind and batch on their first hop; one thread at a time may use it.

    Args:
        comms: of the kind.
        rows: what this trainer sends, `[N, W]`, by the grid's `sending_places`.
        flow: how many rows come, of whom and for whom, over a grid of several rows.
        into: takes in what is for this trainer, `[M, W]`.

    Attributes:
        second: the second hop, once it has begun; rows are here when it is over.
    """

    def __init__(self, comms: GridComms, rows: NDArray[Any], flow: Flow, into: NDArray[Any]) -> None:
        self.second: Hop | None = None
        self._comms, self._flow, self._into = comms, flow, into
        taken = np.empty((flow.relayed.sum(), *rows.shape[1:]), dtype=rows.dtype)
        to_columns = flow.to.reshape(flow.grid).sum(0)
        self._first: Hop | None = Hop(comms.row, rows, to_columns, taken, flow.relayed.sum(1))

    def begin_second(self) -> bool:
        """Pass rows on if all have come. Returns whether they have; never waits. Collective over: the column."""
        if self._first is None or not self._first.is_over():
            return False
        row, column = self._comms.place
        relayed, source = self._flow.relayed, self._flow.source.reshape(self._flow.grid)
        passed = self._first.into.take(self._order(relayed), axis=0)
        to, of_rows = relayed.sum(0), source.sum(1)
        own, here = passed[pieces(to)[row]], self._into[pieces(of_rows)[row]]  # of the trainers of its row
        before = int(relayed[:column, row].sum())
        here[:before] = own[:before]
        here[before + int(source[row, column]) :] = own[before:]
        self.second = Hop(self._comms.column, passed, to, self._into, of_rows, stays=row)
        self._first = None
        return True

    def _order(self, relayed: Counts) -> NDArray[np.intp]:
        """Which of the rows that were taken in is where among those that are passed on: of each receiver, by sender."""
        begins = (relayed.cumsum() - relayed.ravel()).reshape(relayed.shape)
        sizes = relayed.T.ravel()
        order: NDArray[np.intp] = np.repeat(begins.T.ravel() - (sizes.cumsum() - sizes), sizes)
        order += np.arange(order.size)
        return order
