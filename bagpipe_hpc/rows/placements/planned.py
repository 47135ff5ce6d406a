"""Placements whose assignment takes a while to find: `bagpipe place` searches for it once, runs read it from a file.

So ranks need nothing but the file, agree on it, and start at once; and what a plan pins is known to the policy, too.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.rows.access_statistics import AccessStatistics
from bagpipe_hpc.rows.array_file import Int64s
from bagpipe_hpc.rows.placements.assignment import AssignedTables, WholeTable
from bagpipe_hpc.rows.placements.settings import PlannedSettings
from bagpipe_hpc.rows.placements.table_plan import read_plan
from bagpipe_hpc.terminal import counted


@dataclass(frozen=True)
class Request:
    """What a search is asked for.

    Attributes:
        tables: of all widths.
        statistics: of access.
        servers: number of servers S.
        batch_size: samples of a batch.
    """

    tables: tuple[WholeTable, ...]
    statistics: AccessStatistics
    servers: int
    batch_size: int


@dataclass(frozen=True, eq=False)
class Found:
    """What a search has found.

    Attributes:
        holders: the server of each table.
        report: lines for the user about it.
        pinned: rows that stay with the trainers, by the names of tables; hottest first.
        expected_ms: milliseconds of each server for a batch, by the method's own model; empty where it has none.
        hosted: rows that stay with a trainer of each host, as `pinned`.
        trainer_hosts: number of hosts of trainers that `hosted` is for; 0 where no row is held once a host.
    """

    holders: Sequence[int]
    report: Sequence[str]
    pinned: Mapping[str, Int64s] = field(default_factory=dict)
    expected_ms: Sequence[float] = ()
    hosted: Mapping[str, Int64s] = field(default_factory=dict)
    trainer_hosts: int = 0


class PlannedTables(AssignedTables):
    """Whole tables on servers, by a plan in a file."""

    Settings = PlannedSettings
    expects_ms = True

    @classmethod
    @abstractmethod
    def search(cls, request: Request, settings: Any) -> Found:
        """Find a plan; the only part that may take long, and that need not be the same on every host.

        Args:
            request: what is asked for.
            settings: the placement's own settings, `PlannedSettings`.

        Raises:
            BagpipeError: there is no plan, or none was found.
        """

    @classmethod
    def assign(cls, tables: Sequence[WholeTable], servers: int, settings: Any) -> list[int]:
        """The servers that the plan says.

        Raises:
            DataError: the file is no plan of these tables for so many servers.
            SettingError: no file is named.
        """
        plan = read_plan(settings.plan_path)
        if plan.servers != servers:
            raise DataError(
                f"{plan.source}: is a plan for {counted(plan.servers, 'server')}, and the run has {servers}; use as "
                f"many (roles.servers), or make one with `bagpipe place CONFIG --servers {servers}`"
            )
        return [plan.of(table.name, table.rows).holder for table in tables]

    @classmethod
    def expected(cls, tables: Sequence[WholeTable], servers: int, settings: Any) -> Sequence[float]:  # noqa: ARG003
        """What the plan says; milliseconds."""
        return read_plan(settings.plan_path).expected_ms
