"""Which server holds a row, and where: the default placement deals rows round-robin. Pure data."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class RowPartition(Protocol):
    """A placement of global rows on servers; other placements implement these four members."""

    @property
    def servers(self) -> int:
        """Number of servers S."""

    def owner(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Server (0 .. S - 1) of each global row, shape as given."""

    def offset(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position of each global row in its server's window, in rows, shape as given."""

    def rows_of(self, server: int, first_offset: int, last_offset: int) -> NDArray[np.int64]:
        """Global rows at positions `first_offset` up to `last_offset` of a server's window."""

    def rows_on(self, server: int) -> int:
        """Number of rows that a server holds."""


@dataclass(frozen=True)
class RoundRobinPartition:
    """Row k lies on server k mod S at position k div S: even for any mix of table sizes.

    Attributes:
        total_rows: rows of all tables.
        servers: number of servers S.
    """

    total_rows: int
    servers: int

    def owner(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Server of each global row."""
        return rows % self.servers

    def offset(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position of each global row in its server's window."""
        return rows // self.servers

    def rows_of(self, server: int, first_offset: int, last_offset: int) -> NDArray[np.int64]:
        """Global rows at a range of positions of a server's window."""
        return np.arange(first_offset, last_offset, dtype=np.int64) * self.servers + server

    def rows_on(self, server: int) -> int:
        """Number of rows that a server holds."""
        return (self.total_rows - server + self.servers - 1) // self.servers


def table_offsets(table_rows: tuple[int, ...]) -> NDArray[np.int64]:
    """First global row of each table, int64 `[tables + 1]`; the last entry is the number of rows of all tables."""
    return np.concatenate(([0], np.cumsum(table_rows, dtype=np.int64))).astype(np.int64)
