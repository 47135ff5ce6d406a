"""Placements that put each table on one server as a whole: an assignment of tables to servers, and what it weighs.

An assignment sees the tables of all widths at once. Servers hold the tables of one width in the order of their rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.rows.partition import Tables
from bagpipe_hpc.rows.placements.settings import AssignmentSettings
from bagpipe_hpc.rows.ranges import RangePartition


@dataclass(frozen=True)
class WholeTable:
    """A table to be put on a server.

    Attributes:
        name: its name.
        rows: its rows.
        width: numbers D of a row.
        row_bytes: bytes of a row with what its optimizer keeps.
    """

    name: str
    rows: int
    width: int
    row_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.row_bytes


class AssignedTables(RangePartition):
    """Whole tables on servers, by the assignment of a subclass."""

    Settings: ClassVar[type[AssignmentSettings]] = AssignmentSettings
    expects_ms: ClassVar[bool] = False
    """Whether `expected` gives milliseconds; if not, its numbers can only be compared with each other."""

    @classmethod
    def assign(cls, tables: Sequence[WholeTable], servers: int, settings: Any) -> Sequence[int]:
        """The server of each table, 0 .. S - 1.

        The same arguments must give the same servers on every rank.

        Args:
            tables: of all widths, in the order of the data within each width.
            servers: number of servers S, at least one.
            settings: the placement's own settings, an `AssignmentSettings`.

        Raises:
            BagpipeError: these tables cannot be placed in this way.
        """
        raise NotImplementedError

    @classmethod
    def expected(cls, tables: Sequence[WholeTable], servers: int, settings: Any) -> Sequence[float]:  # noqa: ARG003
        """What a batch costs each server by the placement's own model; empty where it has none, as by default.

        Arguments and errors as for `assign`.
        """
        return ()

    @classmethod
    def place_all(cls, groups: Sequence[Tables], servers: int, settings: Any) -> tuple[Self, ...]:
        """Place the tables of all widths.

        Raises:
            BagpipeError: the assignment is refused, or a server would hold more than `server_gb`.
        """
        tables = whole_tables(groups)
        holders = [int(server) for server in cls.assign(tables, servers, settings)]
        require_room(tables, holders, servers, server_limit(settings))
        parts, begin = [], 0
        for group in groups:
            own = holders[begin : begin + len(group.rows)]
            parts.append(cls(tuple(group.offsets.tolist()), tuple(own), servers))
            begin += len(group.rows)
        return tuple(parts)

    @classmethod
    def place(cls, tables: Tables, servers: int, settings: Any) -> Self:
        """Place tables that all have one width."""
        return cls.place_all((tables,), servers, settings)[0]


def whole_tables(groups: Sequence[Tables]) -> tuple[WholeTable, ...]:
    """All tables, width after width."""
    return tuple(
        WholeTable(name, rows, group.width, group.row_bytes)
        for group in groups
        for name, rows in zip(group.names, group.rows, strict=True)
    )


def server_limit(settings: AssignmentSettings) -> float:
    """Most bytes that a server may hold; infinite where there is no limit."""
    return settings.server_gb * 1e9 or float("inf")


def require_room(tables: Sequence[WholeTable], holders: Sequence[int], servers: int, limit_bytes: float) -> None:
    """Check that each table has a server, and that no server holds too much.

    Raises:
        ConfigError: a table has no server, or one that does not exist.
        SettingError: a server holds more than the limit.
    """
    if len(holders) != len(tables) or not all(0 <= holder < servers for holder in holders):
        raise ConfigError(f"tables.placement: {len(tables)} tables are given to servers {list(holders)} of {servers}")
    held = server_bytes(tables, holders, servers)
    if (fullest := max(held)) > limit_bytes:
        raise SettingError(
            "tables.server_gb",
            limit_bytes / 1e9,
            f"server {held.index(fullest)} would hold {fullest / 1e9:.6g} GB; use more servers, or allow more",
        )


def server_bytes(tables: Sequence[WholeTable], holders: Sequence[int], servers: int) -> list[int]:
    """Bytes that each server holds."""
    held = [0] * servers
    for table, holder in zip(tables, holders, strict=True):
        held[holder] += table.bytes
    return held


def deal_greedily(
    tables: Sequence[WholeTable],
    costs: Sequence[float],
    servers: int,
    limit_bytes: float,
    choose: Callable[[Sequence[int], Sequence[float]], int] | None = None,
) -> list[int]:
    """Give tables away by falling cost, each to the server with the least cost so far among those with room (LPT).

    Without a limit, the costliest server has at most 4/3 of the cost of the costliest one in the best assignment
    (Graham: Bounds on multiprocessing timing anomalies, 1969).

    Args:
        tables: the tables.
        costs: of each; tables of the same cost go by falling size, then in their order.
        servers: number of servers S.
        limit_bytes: most that a server may hold.
        choose: takes the servers with room and the cost of every server, and gives one of them; by default the
            cheapest, of several the one that holds least.

    Raises:
        SettingError: no server has room for a table.
    """
    held, loads, holders = [0] * servers, [0.0] * servers, [0] * len(tables)
    for number in sorted(range(len(tables)), key=lambda number: (-costs[number], -tables[number].bytes, number)):
        table = tables[number]
        having_room = [server for server in range(servers) if held[server] + table.bytes <= limit_bytes]
        if not having_room:
            raise SettingError(
                "tables.server_gb",
                limit_bytes / 1e9,
                f"no server has room for table {table.name} of {table.bytes / 1e9:.6g} GB, once dearer tables are "
                "placed; use more servers, allow more, or use greedy_size, which fills servers best",
            )
        if choose:
            chosen = choose(having_room, loads)
        else:
            chosen = min(having_room, key=lambda server: (loads[server], held[server]))
        holders[number] = chosen
        held[chosen] += table.bytes
        loads[chosen] += costs[number]
    return holders


class RandomTables(AssignedTables):
    """Each table on a random server that has room: a baseline for the others."""

    @classmethod
    def assign(cls, tables: Sequence[WholeTable], servers: int, settings: Any) -> list[int]:
        """Draw a server for each table, the largest tables first."""
        random = np.random.default_rng(settings.placement_seed)
        sizes = [float(table.bytes) for table in tables]
        return deal_greedily(
            tables, sizes, servers, server_limit(settings), lambda having_room, _: int(random.choice(having_room))
        )
