"""Which server holds a row, and where: what a placement must say, and the default, which deals rows round-robin."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Tables:
    """The embedding tables of a run, as a placement sees them; where tables have several widths, those of one.

    Attributes:
        rows: rows of each table; global row numbers run through the tables in this order.
        names: name of each table.
        held: how much each server holds already of tables of other widths, as a number of rows of these tables, `[S]`;
            empty where it is nothing.
        width: numbers D of a row; 0 where tables of several widths stand together.
        row_bytes: bytes of a row with its optimizer's state; 0 where it is not needed.
    """

    rows: tuple[int, ...]
    names: tuple[str, ...]
    held: tuple[int, ...] = ()
    width: int = 0
    row_bytes: int = 0

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """First global row of each table, and the number of rows of all tables, int64 `[tables + 1]`."""
        return table_offsets(self.rows)

    @property
    def total_rows(self) -> int:
        """Rows of all tables."""
        return sum(self.rows)


class RowPartition(Protocol):
    """A placement of global rows on servers, what `tables.placement` names: a value, the same on every rank.

    Each row lies on one server, at a position of its own there, and the positions of a server have no gaps. Every rank
    makes the partition when a run starts, and `placement.check_partition` looks at it before anything is
    allocated. Servers ask `rows_of` when they fill and save their rows, trainers `owner` and `offset` for the rows of
    each get, put and add: these two are called some thousand times a second with thousands of rows.

    Results do not depend on a partition, and a checkpoint says which rows its files hold: it needs none to be read.
    """

    @classmethod
    def place(cls, tables: Tables, servers: int, settings: Any) -> Self:
        """Place the rows of `tables` on so many servers.

        The same arguments must give the same partition on every rank: no set, no `hash`, no random number that is not
        seeded.

        Args:
            tables: the tables.
            servers: number of servers S, at least one.
            settings: the placement's own settings.

        Raises:
            ConfigError: these tables cannot be placed in this way.
        """

    @property
    def servers(self) -> int:
        """Number of servers S."""

    def owner(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Server (0 .. S - 1) of each global row, int64, shape as given."""

    def offset(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position of each global row on its server (0 .. `rows_on` - 1), int64, shape as given."""

    def rows_of(self, server: int, first_offset: int, last_offset: int) -> NDArray[np.int64]:
        """Global rows at positions `first_offset` up to `last_offset` of a server, int64 `[last - first]`."""

    def rows_on(self, server: int) -> int:
        """Number of rows that a server holds; may be 0."""


@dataclass(frozen=True)
class RoundRobinPartition:
    """Row k lies on server k mod S at position k div S: even for any mix of table sizes.

    Attributes:
        total_rows: rows of all tables.
        servers: number of servers S.
    """

    total_rows: int
    servers: int

    @classmethod
    def place(cls, tables: Tables, servers: int, settings: Any) -> Self:  # noqa: ARG003 - it has none
        """Deal the rows of all tables."""
        return cls(tables.total_rows, servers)

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


def most_rows(partition: RowPartition) -> int:
    """Rows of the fullest server."""
    return max(partition.rows_on(server) for server in range(partition.servers))


def total_rows(partition: RowPartition) -> int:
    """Rows of all servers."""
    return sum(partition.rows_on(server) for server in range(partition.servers))


def table_offsets(table_rows: Sequence[int]) -> NDArray[np.int64]:
    """First global row of each table, int64 `[tables + 1]`; the last entry is the number of rows of all tables."""
    return np.concatenate(([0], np.cumsum(table_rows, dtype=np.int64))).astype(np.int64)
