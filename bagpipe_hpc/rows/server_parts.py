"""Sorts the rows of one call by the servers that hold them, and counts them, for whoever moves them.

Legend: `N` rows of one call, `S` servers.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.partition import RowPartition


class ServerPart(NamedTuple):
    """The rows of one call that lie on one server.

    Attributes:
        server: its number.
        where: which of the ordered rows they are.
        places: where they lie: positions in this host's memory, int64, where the server is near, that is, its rows are
            reached there; otherwise offsets at the server, int32.
    """

    server: int
    where: slice
    places: NDArray[Any]


class SortedRows(NamedTuple):
    """The rows of one call by server.

    Attributes:
        order: puts them in the order of their servers, int64 `[N]`; None if they are in it already.
        near: the parts of near servers.
        far: the parts of far servers.
    """

    order: NDArray[np.int64] | None
    near: list[ServerPart]
    far: list[ServerPart]


class RowSorter:
    """Knows where rows lie, as one rank sees it.

    Args:
        partition: which server holds a row, and where.
        servers_here: servers whose rows lie in the memory of this host, in their order there.
    """

    def __init__(self, partition: RowPartition, servers_here: Sequence[int]) -> None:
        self._partition = partition
        self.first_rows = np.zeros(partition.servers, dtype=np.int64)
        """Where each server's rows start in the memory of this host, int64 `[S]`; of no meaning for those elsewhere."""
        self.rows_here = 0
        """Rows in the memory of this host."""
        for server in servers_here:
            self.first_rows[server] = self.rows_here
            self.rows_here += partition.rows_on(server)
        self.moved = {what: np.zeros(partition.servers, dtype=np.int64) for what in ("got", "put", "added")}
        """Rows of all calls at each server by what was done with them, int64 `[S]` each."""

    def near_index(self, rows: NDArray[np.int64], what: str) -> NDArray[np.int64]:
        """Where rows of near servers stand in the memory of this host, int64 `[N]`; they are counted as `what`."""
        index, servers = self._partition.offset(rows), self._partition.servers
        if servers == 1:
            self.moved[what] += rows.size
            return index
        owners = self._partition.owner(rows)
        self.moved[what] += np.bincount(owners, minlength=servers)
        return index + self.first_rows.take(owners)

    def by_server(self, rows: NDArray[np.int64], near_servers: Sequence[int], what: str | None) -> SortedRows:
        """Sort rows by server.

        Args:
            rows: global rows `[N]`.
            near_servers: whose rows are reached in the memory of this host.
            what: how they are counted, a key of `moved`; None: not at all.
        """
        offsets = self._partition.offset(rows)
        order, bounds = None, [0, rows.size]
        if self._partition.servers > 1:
            owners = self._partition.owner(rows).astype(np.int16)
            order = np.argsort(owners, kind="stable")  # a radix sort, on numbers of 16 bits
            offsets = offsets[order]
            bounds = np.cumsum([0, *np.bincount(owners, minlength=self._partition.servers)]).tolist()
        if what is not None:
            self.moved[what] += np.diff(bounds)
        near, far = [], []
        for server, (first, last) in enumerate(pairwise(bounds)):
            if first == last:
                continue
            if server in near_servers:
                index = offsets[first:last] + self.first_rows[server]
                near.append(ServerPart(server, slice(first, last), index))
            else:
                far.append(ServerPart(server, slice(first, last), offsets[first:last].astype(np.int32)))
        return SortedRows(order, near, far)
