"""Which rank counts the values of which tables, and how they come together: as a file for each table.

Files also keep what is counted through a kill.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.shards.waiting_values import WaitingValues
from data_prep.formats.layout import Table
from data_prep.parsed_rows import ParsedRows, values_of
from data_prep.preparation_state import WorkFolder, naming_output
from data_prep.ranks.board import Stage
from data_prep.ranks.team import Team
from data_prep.wide_values import CountedValues

_SAMPLED_ROWS = 1 << 16
_COST_OF_FIELD, _COST_OF_VALUE = 1.0, 8.0
"""Counting a value that is new or rare misses the caches; the costs are about those of native code."""

_FREQUENT, _LOOK_UPS = b"frequent", b"look_ups"
"""What a file says beside its columns."""

CountTables = Callable[[Sequence[Table]], Sequence[CountedValues | None]]
"""Counts some tables."""


def count_tables(
    team: Team, rows: ParsedRows, train_rows: int, work: WorkFolder, tables: Sequence[Table], count: CountTables
) -> None:
    """Let each rank count tables of its own. Collective over: all ranks of `team`.

    A rank needs memory for the values of its tables alone while it counts.

    Args:
        team: the ranks.
        rows: all parsed rows.
        train_rows: how many of them count.
        work: takes the files.
        tables: all tables.
        count: gives the values of some of them; None where they are to be hashed.
    """
    missing = team.first_does(lambda: [n for n in range(len(tables)) if not _file(work, n).exists()])
    fields = [train_rows * len(table.columns) for table in tables]
    done = sum(fields) - sum(fields[number] for number in missing)
    team.begin(Stage("counted", sum(fields), done, done, unit="the training rows", what_of="fields"))

    def count_own() -> None:
        own = deal_tables(rows, [tables[number] for number in missing], team.size)[team.rank]
        chosen = [missing[place] for place in own]
        found = count([tables[number] for number in chosen])
        with naming_output(work.output):
            for number, values in zip(chosen, found, strict=True):
                _save(_file(work, number), values)

    team.each_does(count_own)


def counted_tables(work: WorkFolder, tables: Sequence[Table]) -> Iterator[CountedValues | None]:
    """The values of each table, once `count_tables` has come through; a table is read when it is asked for."""
    return (_load(_file(work, number)) for number in range(len(tables)))


def deal_tables(rows: ParsedRows, tables: Sequence[Table], ranks: int) -> list[list[int]]:
    """Deal tables out so that each rank has about as much to count; by the rows alone, the same on every rank.

    Args:
        rows: all parsed rows, the first of which are looked at.
        tables: the tables.
        ranks: number of ranks.

    Returns:
        The indices of each rank's tables, ascending.
    """
    if ranks == 1:
        return [list(range(len(tables)))]
    costs = list(_costs(rows, tables))
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(0.0, rank) for rank in range(ranks)]
    for table in sorted(range(len(tables)), key=lambda table: (-costs[table], table)):
        load, rank = heapq.heappop(loads)
        dealt[rank].append(table)
        heapq.heappush(loads, (load + costs[table], rank))
    return [sorted(own) for own in dealt]


def _costs(rows: ParsedRows, tables: Sequence[Table]) -> Iterator[float]:
    sample = pa.Table.from_batches(rows.read(0, min(rows.rows, _SAMPLED_ROWS)))
    for table in tables:
        chunks = values_of(sample, table.columns)
        fields = sum(len(chunk) for chunk in chunks)
        values = sum(pc.count_distinct(chunk).as_py() for chunk in chunks)
        yield _COST_OF_FIELD * fields + _COST_OF_VALUE * values


def _file(work: WorkFolder, number: int) -> Path:
    return work.parts_folder / f"table-{number:05d}.arrow"


def _save(path: Path, counted: CountedValues | None) -> None:
    """Write what was counted of a table, frequent values before rare ones; a file without columns stands for None."""
    columns, words = {}, {}
    if counted is not None:
        values = np.concatenate((counted.values, counted.rare.values))
        kind = pa.large_string() if values.dtype == np.object_ else None
        counts = np.concatenate((counted.counts, counted.rare.counts))
        columns = {"values": pa.array(values, kind), "counts": pa.array(counts)}
        words = {_FREQUENT: str(len(counted.values)), _LOOK_UPS: str(counted.look_ups)}
    table = pa.table(columns).replace_schema_metadata(words)
    with (
        atomic_write(path) as partial,
        pa.OSFile(str(partial), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as file,
    ):
        file.write_table(table)


def _load(path: Path) -> CountedValues | None:
    try:
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(
            f"{path}: the values that were counted cannot be read ({error}); remove {path.parent.parent} and run "
            "bagpipe prepare again"
        ) from error
    if not table.column_names:
        return None
    values, counts = (table.column(name).to_numpy() for name in ("values", "counts"))
    frequent, look_ups = (int(table.schema.metadata[name]) for name in (_FREQUENT, _LOOK_UPS))
    rare = WaitingValues(values[frequent:], counts[frequent:])
    # Copies: the frequent values stay in memory, and would keep the rare ones there.
    return CountedValues(values[:frequent].copy(), counts[:frequent].copy(), rare, look_ups)
