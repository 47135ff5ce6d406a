"""Tables by falling cost to the cheapest server: baselines of AutoShard (KDD 2022) and DreamShard (NeurIPS 2022)."""

from abc import abstractmethod
from collections.abc import Sequence
from math import log10
from typing import Any

from bagpipe_hpc.rows.access_statistics import TableAccesses, read_statistics
from bagpipe_hpc.rows.placements.assignment import AssignedTables, WholeTable, deal_greedily, server_limit


class GreedyTables(AssignedTables):
    """Deals tables by falling cost; a server's cost is the sum of its tables' costs."""

    @classmethod
    @abstractmethod
    def costs(cls, tables: Sequence[WholeTable], settings: Any) -> list[float]:
        """What each table costs a server."""

    @classmethod
    def assign(cls, tables: Sequence[WholeTable], servers: int, settings: Any) -> list[int]:
        """Deal tables by their costs."""
        return deal_greedily(tables, cls.costs(tables, settings), servers, server_limit(settings))

    @classmethod
    def expected(cls, tables: Sequence[WholeTable], servers: int, settings: Any) -> list[float]:
        """The sum of each server's costs."""
        loads = [0.0] * servers
        holders = cls.assign(tables, servers, settings)
        for cost, holder in zip(cls.costs(tables, settings), holders, strict=True):
            loads[holder] += cost
        return loads


class GreedySize(GreedyTables):
    """By bytes: servers hold as much as each other."""

    @classmethod
    def costs(cls, tables: Sequence[WholeTable], settings: Any) -> list[float]:  # noqa: ARG003
        """Their bytes."""
        return [float(table.bytes) for table in tables]


class GreedyDimension(GreedyTables):
    """By dimension: the width of a table's rows."""

    @classmethod
    def costs(cls, tables: Sequence[WholeTable], settings: Any) -> list[float]:  # noqa: ARG003
        """Their widths."""
        return [float(table.width) for table in tables]


class GreedyByAccesses(GreedyTables):
    """By a cost that knows how often a table is looked up."""

    @classmethod
    @abstractmethod
    def cost(cls, table: WholeTable, accesses: TableAccesses) -> float:
        """What a table costs a server."""

    @classmethod
    def costs(cls, tables: Sequence[WholeTable], settings: Any) -> list[float]:
        """By the statistics of access."""
        statistics = read_statistics(settings.statistics_path)
        return [cls.cost(table, statistics.of(table.name, table.rows)) for table in tables]


class GreedyLookup(GreedyByAccesses):
    """By dimension x look-ups of a sample: numbers that are gathered of the table."""

    @classmethod
    def cost(cls, table: WholeTable, accesses: TableAccesses) -> float:
        """Numbers that a sample gathers on average."""
        return table.width * accesses.sample_look_ups


class GreedySizeLookup(GreedyByAccesses):
    """By dimension x look-ups of a sample x log10(rows): large tables miss processors' caches more often."""

    @classmethod
    def cost(cls, table: WholeTable, accesses: TableAccesses) -> float:
        """Numbers that a sample gathers on average, times the digits of the table's rows."""
        return table.width * accesses.sample_look_ups * log10(table.rows)
