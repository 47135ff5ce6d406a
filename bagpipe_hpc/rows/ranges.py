"""Placements that give servers whole ranges of rows: equal shares, or whole tables."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.partition import Tables


@dataclass(frozen=True)
class RangePartition:
    """Ranges of consecutive rows, each on one server, where they lie in the order of their rows.

    Attributes:
        bounds: first row of each range, from 0, and the number of all rows; none of the ranges is empty.
        holders: the server of each range.
        servers: number of servers S.
    """

    bounds: tuple[int, ...]
    holders: tuple[int, ...]
    servers: int

    @cached_property
    def _starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of each range: its first row, its server, and how far a row's number is above its position there."""
        before = [0] * self.servers
        above = []
        for holder, (first, last) in zip(self.holders, pairwise(self.bounds), strict=True):
            above.append(first - before[holder])
            before[holder] += last - first
        first_rows, holders = np.array(self.bounds[:-1], dtype=np.int64), np.array(self.holders, dtype=np.int64)
        return first_rows, holders, np.array(above, dtype=np.int64)

    def owner(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Server of each global row."""
        first_rows, holders, _ = self._starts
        return holders[np.searchsorted(first_rows, rows, side="right") - 1]

    def offset(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position of each global row on its server."""
        first_rows, _, above = self._starts
        return rows - above[np.searchsorted(first_rows, rows, side="right") - 1]

    def rows_of(self, server: int, first_offset: int, last_offset: int) -> NDArray[np.int64]:
        """Global rows at a range of positions of a server."""
        first_rows, holders, above = self._starts
        own = holders == server
        positions = np.arange(first_offset, last_offset, dtype=np.int64)
        ranges = np.searchsorted(first_rows[own] - above[own], positions, side="right") - 1
        rows: NDArray[np.int64] = positions + above[own][ranges]
        return rows

    def rows_on(self, server: int) -> int:
        """Number of rows that a server holds."""
        ranges = zip(self.holders, pairwise(self.bounds), strict=True)
        return sum(last - first for holder, (first, last) in ranges if holder == server)


class ContiguousPartition(RangePartition):
    """Each server has one range of rows; their lengths differ by one at most."""

    @classmethod
    def place(cls, tables: Tables, servers: int, settings: Any) -> Self:  # noqa: ARG003 - it has none
        """Cut the rows of all tables into equal ranges."""
        rows = tables.total_rows
        cuts = [rows * number // servers for number in range(servers + 1)]
        held = [server for server in range(servers) if cuts[server] < cuts[server + 1]]
        return cls((0, *(cuts[server + 1] for server in held)), tuple(held), servers)


class TablePartition(RangePartition):
    """Each table lies on one server as a whole.

    Tables are given away by falling size, each to the server that holds least (LPT, Graham: Bounds on multiprocessing
    timing anomalies, 1969). Where all tables have one width, the fullest server has at most 4/3 of what the fullest one
    has in the best placement. Several widths are placed one after the other, each beside what the servers hold by then.
    """

    @classmethod
    def place(cls, tables: Tables, servers: int, settings: Any) -> Self:  # noqa: ARG003 - it has none
        """Give whole tables to servers."""
        loads = list(tables.held) or [0] * servers
        holders = [0] * len(tables.rows)
        for table in sorted(range(len(tables.rows)), key=lambda table: (-tables.rows[table], table)):
            holders[table] = loads.index(min(loads))
            loads[holders[table]] += tables.rows[table]
        return cls(tuple(tables.offsets.tolist()), tuple(holders), servers)
