"""A plan of tables: which server has which, and which rows stay with the trainers; made once, read by every run.

`bagpipe place` writes it, `tables.plan` and `policy.plan` name it. The file is a `.npz` of NumPy without pickled
objects: `format` (1), `method`, `data` (digest of the shards of the statistics), `servers`, `names`, and int64 `[N]`:
`rows`, `holders` and `pinned`, the number of each table's pinned rows; `pinned/J` has those of table J, hottest first.
Where rows are held once a host there are `trainer_hosts`, the number of hosts of trainers, and `hosted` and `hosted/J`,
like `pinned` and `pinned/J`.
`expected_ns`, int64 `[S]`, is what each server takes for a batch by the method's own model; 0 where it has none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.rows.array_file import Int64s, are_different, open_arrays
from bagpipe_hpc.rows.placements.assignment import WholeTable

FORMAT = 1
_KIND = "a plan of tables"
_AGAIN = "write it again with `bagpipe place CONFIG --servers S`"


@dataclass(frozen=True)
class PlannedTable:
    """What a plan says of a table.

    Attributes:
        rows: its rows.
        holder: its server.
        pinned: how many of its rows stay with the trainers.
        hosted: how many more stay with a trainer of each host.
    """

    rows: int
    holder: int
    pinned: int
    hosted: int = 0


@dataclass(frozen=True)
class TablePlan:
    """A plan of tables.

    Attributes:
        source: the file.
        method: the placement that made it.
        data: SHA-256 of the shards of the statistics, 64 hexadecimal digits.
        servers: number of servers S.
        tables: by name.
        expected_ms: milliseconds of each server for a batch, by the method's own model; empty where it has none.
        trainer_hosts: number of hosts of trainers that it is made for; 0 where it holds no rows once a host.
    """

    source: Path
    method: str
    data: str
    servers: int
    tables: Mapping[str, PlannedTable]
    expected_ms: tuple[float, ...] = ()
    trainer_hosts: int = 0

    def of(self, name: str, rows: int) -> PlannedTable:
        """What it says of a table of a run.

        Raises:
            DataError: it knows no such table.
        """
        found = self.tables.get(name)
        if found is None or found.rows != rows:
            known = "knows no such table" if found is None else f"has {found.rows} rows for it"
            raise DataError(f"{self.source}: table {name!r:.80} has {rows} rows, and the plan {known}; {_AGAIN}")
        return found

    def kept_rows(self, names: Iterable[str]) -> Iterator[tuple[Int64s, Int64s]]:
        """The rows of tables that stay with the trainers, and with a trainer of each host, hottest first.

        The file is opened once, as in `AccessStatistics.hottest`.

        Args:
            names: of the tables.

        Yields:
            The former and the latter, int64 each, of one table after the other: numbers within the table.

        Raises:
            DataError: the file is damaged, or is another one now.
        """
        numbers = {name: number for number, name in enumerate(self.tables)}
        with open_arrays(self.source, _KIND, _AGAIN) as file:
            for name in names:
                table, number = self.tables[name], numbers[name]
                pinned = file.integers(f"pinned/{number}", table.pinned)
                hosted = file.integers(f"hosted/{number}", table.hosted) if self.trainer_hosts else pinned[:0]
                rows = np.concatenate((pinned, hosted))
                if not are_different(rows) or rows.max(initial=0) >= table.rows:
                    file.refuse(f"pins rows of table {name!r:.80} that it does not have, or twice")
                yield pinned, hosted


def write_plan(
    file: IO[bytes],
    method: str,
    data: str,
    servers: int,
    tables: Sequence[WholeTable],
    holders: Sequence[int],
    pinned: Mapping[str, Int64s],
    expected_ms: Sequence[float] = (),
    hosted: Mapping[str, Int64s] | None = None,
    trainer_hosts: int = 0,
) -> None:
    """Write a plan.

    Args:
        file: to write to.
        method: the placement that made it.
        data: digest of the shards whose statistics it was made from.
        servers: number of servers.
        tables: all tables.
        holders: the server of each.
        pinned: rows that stay with the trainers, by the names of tables; hottest first.
        expected_ms: milliseconds of each server for a batch, by the method's own model; empty where it has none.
        hosted: rows that stay with a trainer of each host, as `pinned`.
        trainer_hosts: number of hosts of trainers, where there are such rows.
    """
    none = np.empty(0, dtype=np.int64)
    rows = [pinned.get(table.name, none) for table in tables]
    members = {
        "format": np.array(FORMAT),
        "method": np.array(method),
        "data": np.array(data),
        "servers": np.array(servers),
        "names": np.array([table.name for table in tables], dtype=np.str_),
        "rows": np.array([table.rows for table in tables], dtype=np.int64),
        "holders": np.array(holders, dtype=np.int64),
        "pinned": np.array([of_table.size for of_table in rows], dtype=np.int64),
        "expected_ns": np.rint(1e6 * np.array(expected_ms or [0.0] * servers)).astype(np.int64),
        **{f"pinned/{number}": of_table for number, of_table in enumerate(rows)},
    }
    if trainer_hosts:
        at_hosts = [(hosted or {}).get(table.name, none) for table in tables]
        members["trainer_hosts"] = np.array(trainer_hosts)
        members["hosted"] = np.array([of_table.size for of_table in at_hosts], dtype=np.int64)
        members |= {f"hosted/{number}": of_table for number, of_table in enumerate(at_hosts)}
    np.savez_compressed(file, allow_pickle=False, **members)


def read_plan(path: Path) -> TablePlan:
    """Read a plan without the lists of rows that it keeps at trainers (`TablePlan.kept_rows`).

    Raises:
        DataError: the file is no plan, or is damaged.
        FileError: the system refuses it.
    """
    with open_arrays(path, _KIND, _AGAIN) as file:
        file.require_format(FORMAT)
        names, servers = file.names("names"), file.integer("servers")
        rows, holders, pinned = (file.integers(name, len(names)).tolist() for name in ("rows", "holders", "pinned"))
        if max(holders, default=0) >= servers:
            file.refuse(f"gives a table to server {max(holders)} of {servers}")
        trainer_hosts = file.integer("trainer_hosts") if "trainer_hosts" in file.members else 0
        hosted = file.integers("hosted", len(names)).tolist() if trainer_hosts else [0] * len(names)
        by_name = dict(zip(names, map(PlannedTable, rows, holders, pinned, hosted), strict=True))
        expected_ns = file.integers("expected_ns", servers)
        expected_ms = tuple((expected_ns / 1e6).tolist()) if expected_ns.any() else ()
        return TablePlan(path, file.text("method"), file.text("data"), servers, by_name, expected_ms, trainer_hosts)
