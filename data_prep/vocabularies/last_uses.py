"""Which training row uses a value last, in existing shards and in parsed rows."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.id_uses import read_counts, read_last_use
from bagpipe_hpc.storage.vocabularies.vocabulary import Int64s, TableUse, TableValues, TableVocabulary
from bagpipe_hpc.storage.vocabularies.waiting_values import read_waiting
from data_prep.backend import Backend
from data_prep.formats.layout import IdRule, Table
from data_prep.formats.value_lists import list_values
from data_prep.parsed_rows import ParsedRows
from data_prep.recorded import RecordedPreparation
from data_prep.vocabularies.growth import KnownTable

_BLOCK_ROWS = 1 << 16


def known_tables(earlier: RecordedPreparation) -> dict[str, KnownTable]:
    """All that a directory says about the values of each table that is not hashed, by the table's name.

    Raises:
        DataError: it says too little to grow from, or a file is missing or damaged.
    """
    directory, manifest = earlier.directory, earlier.manifest
    if manifest.settings and "like" in manifest.settings:
        raise DataError(
            f"{directory}: was prepared with --like, so that its vocabularies are those of other rows; name the "
            "directory that it was prepared like"
        )
    first = last_uses_of_shards(earlier) if manifest.grown_from is None else None
    known: dict[str, KnownTable] = {}
    for number, (table, vocabulary) in enumerate(zip(manifest.tables, earlier.vocabularies, strict=True)):
        if vocabulary is None:
            continue
        counts, waiting = read_counts(directory, manifest, table.name), read_waiting(directory, manifest, table.name)
        last = first[number] if first is not None else read_last_use(directory, manifest, table.name)
        if waiting.values.dtype != vocabulary.values.dtype:
            kinds = f"{waiting.values.dtype} instead of {vocabulary.values.dtype}"
            raise DataError(f"{directory}: the waiting values of table {table.name} are {kinds}; {PREPARE_AGAIN}")
        if last is None:
            raise DataError(f"{directory}: does not say when ids were used last; {PREPARE_AGAIN}")
        known[table.name] = KnownTable(vocabulary, TableUse(counts, last), waiting)
    return known


def last_uses_of_shards(earlier: RecordedPreparation) -> list[Int64s]:
    """For each table, the number of the directory's last training row that looks up each id, int64 `[rows]`; else -1.

    Raises:
        DataError: a shard is missing or damaged.
    """
    manifest = earlier.manifest
    last = [np.full(rows, -1, dtype=np.int64) for rows in manifest.table_rows]
    with ClickShards(earlier.directory, manifest, "train") as shards:
        for first in range(0, shards.rows, _BLOCK_ROWS):
            bags = shards.read_look_ups(first, min(first + _BLOCK_ROWS, shards.rows))
            grid, rows = bags.grid, np.arange(first, first + bags.samples)
            if grid is not None:
                for feature, table in enumerate(manifest.feature_tables):
                    note_uses(last[table], grid[:, feature], rows)
                continue
            columns, row_of_value = bags.columns, rows[bags.sample_of_value]
            for feature, table in enumerate(manifest.feature_tables):
                is_its = columns == feature
                note_uses(last[table], bags.values[is_its], row_of_value[is_its])
    return last


def last_uses_of_rows(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    train_rows: int,
    first: int,
    tables: Sequence[Table],
    watched: Sequence[TableValues],
    backend: Backend,
) -> list[Int64s]:
    """For each table, the number of the last training row that uses each watched value, int64 `[values]`; else -1.

    Args:
        pool: threads to use.
        rows: all parsed rows.
        train_rows: how many of them are for training.
        first: number of the first training row.
        tables: the tables.
        watched: distinct values of each table.
        backend: finds the values.
    """
    places = backend.id_maps(
        tables, [TableVocabulary(values) for values in watched], [IdRule(1, None, 2)] * len(tables)
    )
    last = [np.full(len(values) + 1, -1, dtype=np.int64) for values in watched]

    def note_part(number: int, part: pa.Table, begin: int) -> None:
        for column in tables[number].columns:
            at = begin
            for chunk in part.column(column).chunks:
                values, row = list_values(chunk), np.arange(at, at + len(chunk))
                if pa.types.is_list(chunk.type):
                    row = np.repeat(row, np.diff(chunk.offsets.to_numpy()))
                ids = np.empty((len(values), 1), dtype=np.int64)
                places.write_ids([values], [number], ids)
                note_uses(last[number], ids[:, 0], row)
                at += len(chunk)

    for part in rows.parts(train_rows):
        numbers = range(len(tables))
        list(pool.map(note_part, numbers, [part] * len(tables), [first] * len(tables)))
        first += len(part)
    return [found[1:] for found in last]


def note_uses(last: Int64s, ids: Int64s, rows: Int64s) -> None:
    """Note that rows use ids.

    Args:
        last: the last row of each id, int64; changed.
        ids: int64 `[n]`.
        rows: the row that uses each of `ids`, int64 `[n]`, ascending, so that of equal ids the last one counts.
    """
    last[ids] = np.maximum(last[ids], rows)
