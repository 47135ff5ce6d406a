"""Which rank counts the values of which tables, and how the counts come together: each rank writes a file.

Files also keep the counts if the preparation is killed. A file holds an Arrow stream for each table of its rank, one
after the other.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.vocabularies.waiting_values import WaitingValues
from data_prep.formats.layout import Table
from data_prep.parsed_rows import ParsedRows, values_of
from data_prep.preparation_state import WorkFolder
from data_prep.ranks.board import Stage
from data_prep.ranks.team import Team
from data_prep.vocabularies.hashed_counts import HashedCounts
from data_prep.vocabularies.wide_values import CountedValues, as_column

_PREFIX = "counted-"
_SAMPLED_ROWS = 1 << 16
_COST_OF_FIELD, _COST_OF_VALUE = 1.0, 8.0
"""Relative costs of counting a value, about those of native code: a new or rare value misses the caches."""

_TABLE, _FREQUENT, _LOOK_UPS = b"table", b"frequent", b"look_ups"
"""Metadata of a stream: the table's number, how many of its values are frequent, and its look-ups."""

Counted = CountedValues | HashedCounts
"""The counts of a table: of values that get ids, or of ids where values are hashed."""
CountTables = Callable[[Sequence[Table]], Iterator[tuple[int, Counted]]]
"""Counts some tables; yields the index of each among them, with its counts, in any order."""


def count_tables(
    team: Team, rows: ParsedRows, train_rows: int, work: WorkFolder, tables: Sequence[Table], count: CountTables
) -> None:
    """Let each rank count tables of its own. Collective over: all ranks of `team`.

    While it counts, a rank needs memory only for the values of its own tables.

    Args:
        team: the ranks.
        rows: all parsed rows.
        train_rows: how many of them, the first ones, count.
        work: the folder for the files.
        tables: all tables.
        count: counts some of them.
    """
    missing = team.first_does(lambda: sorted(set(range(len(tables))) - set(_open(work))))
    fields = [train_rows * len(table.columns) for table in tables]
    done = sum(fields) - sum(fields[number] for number in missing)
    team.begin(Stage("counted", sum(fields), done, done, unit="the training rows", what_of="fields"))

    def count_own() -> None:
        own = deal_tables(rows, [tables[number] for number in missing], team.size)[team.rank]
        chosen = [missing[place] for place in own]
        if not chosen:
            return
        found = count([tables[number] for number in chosen])
        with work.naming_output():  # ranks have no table in common, so its first table can name a rank's file
            path = work.parts_folder / f"{_PREFIX}{chosen[0]:05d}.arrows"
            _save(path, ((chosen[place], counted) for place, counted in found))

    team.each_does(count_own)


def counted_tables(work: WorkFolder, tables: Sequence[Table]) -> Iterator[Counted]:
    """The counts of each table in order, after `count_tables`; a table is read when it is asked for."""
    saved = _open(work)
    return (_counted(saved[number]) for number in range(len(tables)))


def deal_tables(rows: ParsedRows, tables: Sequence[Table], ranks: int) -> list[list[int]]:
    """Deal tables out so that ranks have about as much to count; by the rows alone, so the same on every rank.

    Args:
        rows: all parsed rows, of which the first are sampled.
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


def _save(path: Path, tables: Iterable[tuple[int, Counted]]) -> None:
    """Write the counts of tables, with the tables' numbers; each is taken once the one before is written."""
    with atomic_write(path) as partial, pa.OSFile(str(partial), "wb") as sink:
        for number, counted in tables:
            table = _as_table(number, counted)
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)


def _as_table(number: int, counted: Counted) -> pa.Table:
    """Values with their counts, frequent before rare ones; for hashed tables only the counts, if there are any."""
    columns, words = {}, {_TABLE: str(number)}
    if isinstance(counted, CountedValues):
        values = np.concatenate((counted.values, counted.rare.values))
        counts = np.concatenate((counted.counts, counted.rare.counts))
        columns = {"values": as_column(values), "counts": pa.array(counts)}
        words |= {_FREQUENT: str(len(counted.values)), _LOOK_UPS: str(counted.look_ups)}
    elif counted.counts is not None:
        columns = {"counts": pa.array(counted.counts)}
    return pa.table(columns).replace_schema_metadata(words)


def _open(work: WorkFolder) -> dict[int, pa.Table]:
    """The counts so far, by the tables' numbers; mapped into memory, not read.

    Raises:
        DataError: a file is damaged.
    """
    found: dict[int, pa.Table] = {}
    for path in sorted(work.parts_folder.glob(f"{_PREFIX}*.arrows")):
        try:
            with pa.memory_map(str(path)) as file:
                while file.tell() < file.size():
                    table = pa.ipc.open_stream(file).read_all()
                    found[int(table.schema.metadata[_TABLE])] = table
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(
                f"{path}: the values that were counted cannot be read ({error}); remove {path.parent.parent} and run "
                "bagpipe prepare again"
            ) from error
    return found


def _counted(table: pa.Table) -> Counted:
    """The inverse of `_as_table`."""
    if "values" not in table.column_names:
        return HashedCounts(table.column("counts").to_numpy() if table.column_names else None)
    values, counts = (table.column(name).to_numpy() for name in ("values", "counts"))
    frequent, look_ups = (int(table.schema.metadata[name]) for name in (_FREQUENT, _LOOK_UPS))
    rare = WaitingValues(values[frequent:], counts[frequent:])
    # Copies, since the frequent values stay in memory, and views would keep the rare ones there, too.
    return CountedValues(values[:frequent].copy(), counts[:frequent].copy(), rare, look_ups)
