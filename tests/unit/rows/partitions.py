"""Partitions for tests: all that come with the package, and one whose rows are scattered."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.rows.partition import RoundRobinPartition, RowPartition, Tables
from bagpipe_hpc.rows.ranges import ContiguousPartition, TablePartition


@dataclass(frozen=True)
class ShuffledPartition:
    """Rows in a random order, dealt round-robin: they make as many runs as can be, and do not ascend."""

    total_rows: int
    servers: int
    seed: int = 3

    @classmethod
    def place(cls, tables: Tables, servers: int, settings: Any) -> Self:
        del settings
        return cls(tables.total_rows, servers)

    @property
    def _order(self) -> NDArray[np.int64]:
        return np.random.default_rng(self.seed).permutation(self.total_rows)

    def owner(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.argsort(self._order)[rows] % self.servers

    def offset(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.argsort(self._order)[rows] // self.servers

    def rows_of(self, server: int, first_offset: int, last_offset: int) -> NDArray[np.int64]:
        return self._order[server :: self.servers][first_offset:last_offset]

    def rows_on(self, server: int) -> int:
        return len(range(server, self.total_rows, self.servers))


PLACEMENTS: list[type[RowPartition]] = [RoundRobinPartition, ContiguousPartition, TablePartition, ShuffledPartition]


def tables_of(rows: tuple[int, ...]) -> Tables:
    """Tables C1, C2, ... of so many rows."""
    return Tables(rows, tuple(f"C{number}" for number in range(1, len(rows) + 1)))


def partitions_of(rows: tuple[int, ...], most_servers: int = 6) -> st.SearchStrategy[RowPartition]:
    """Any partition of these tables."""
    tables = tables_of(rows)
    return st.builds(
        lambda kind, servers: kind.place(tables, servers, None),
        st.sampled_from(PLACEMENTS),
        st.integers(1, most_servers),
    )


tables = st.lists(st.integers(1, 99), min_size=1, max_size=9).map(tuple)
partitions = tables.flatmap(lambda rows: partitions_of(rows, 12))
"""Any partition of any tables."""
