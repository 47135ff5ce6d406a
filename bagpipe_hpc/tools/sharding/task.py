"""The input of a search for an assignment of tables to servers: features of tables, and what groups of them cost.

Shapes: `T` tables, `S` servers, 21 features of a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.access_statistics import AccessStatistics
from bagpipe_hpc.rows.placements.assignment import WholeTable, server_bytes

FEATURES = 21
"""Dimension, rows, pooling factor, size, and 17 shares of the used rows by how often they are used."""
_SCALED = 4
"""How many features, the first ones, are scaled to mean 0 and deviation 1 over the tables."""


@dataclass(frozen=True)
class GroupCost:
    """What a batch costs a server.

    Attributes:
        forward_ms: time to gather the rows.
        backward_ms: time to put them back.
    """

    forward_ms: float
    backward_ms: float

    @property
    def total_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms


class GroupCosts(Protocol):
    """Says what a group of tables costs the server that has them."""

    def cost(self, group: Sequence[int]) -> GroupCost:
        """The cost of tables, given by their numbers in any order; 0 for none."""


@dataclass(frozen=True)
class Task:
    """Tables to be put on servers.

    Attributes:
        tables: the tables.
        features: features of the tables, float32 `[T, 21]`.
        servers: number of servers S.
        limit_bytes: most that a server may hold; infinite where there is no limit.
    """

    tables: tuple[WholeTable, ...]
    features: NDArray[np.float32]
    servers: int
    limit_bytes: float = float("inf")

    def fits(self, holders: Sequence[int]) -> bool:
        """Whether no server holds too much."""
        return max(server_bytes(self.tables, holders, self.servers)) <= self.limit_bytes


def groups_of(holders: Sequence[int], servers: int) -> list[tuple[int, ...]]:
    """The tables of each server."""
    return [tuple(table for table, holder in enumerate(holders) if holder == server) for server in range(servers)]


def slowest_ms(costs: GroupCosts, holders: Sequence[int], servers: int) -> float:
    """Milliseconds of a batch at the slowest server."""
    return max(costs.cost(group).total_ms for group in groups_of(holders, servers))


def table_features(tables: Sequence[WholeTable], statistics: AccessStatistics) -> NDArray[np.float32]:
    """The features of tables, float32 `[T, 21]`.

    Rows and sizes are logarithms, since they spread over many powers of ten; dimension, rows, pooling and size have
    mean 0 and deviation 1 over the tables.

    Raises:
        DataError: the statistics belong to other tables.
    """
    found = []
    for table in tables:
        accesses = statistics.of(table.name, table.rows)
        numbers = (table.width, np.log10(table.rows), accesses.sample_look_ups, np.log10(table.bytes))
        found.append([*numbers, *accesses.reuse_shares])
    features = np.array(found, dtype=np.float64).reshape(len(found), FEATURES)
    scaled = features[:, :_SCALED]
    spread = scaled.std(axis=0)
    features[:, :_SCALED] = (scaled - scaled.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return features.astype(np.float32)
