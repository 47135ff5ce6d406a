"""Counts how often the training rows look up each id of a hashed table, in a pass over the table's columns."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bagpipe_hpc.storage.vocabularies.id_uses import MOST_COUNTED_ROWS
from bagpipe_hpc.storage.vocabularies.vocabulary import Int64s
from data_prep.backend import Backend
from data_prep.formats.layout import IdRule, Table
from data_prep.parsed_rows import ParsedRows, values_of


@dataclass(frozen=True, eq=False)
class HashedCounts:
    """The counts of a table whose values are hashed.

    Attributes:
        counts: look-ups of each id, int64 `[rows]`; None where the table has too many rows to count.
    """

    counts: Int64s | None


def count_hashed(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    train_rows: int,
    tables: Sequence[Table],
    rules: Sequence[IdRule],
    backend: Backend,
) -> Iterator[HashedCounts]:
    """Count the ids of tables whose values are hashed; memory is 8 bytes for each of `MOST_COUNTED_ROWS` ids.

    Args:
        pool: threads to use.
        rows: all parsed rows.
        train_rows: how many of them count.
        tables: the tables.
        rules: the rule of each table.
        backend: hashes the values.

    Yields:
        The counts of each table, in order.
    """
    id_maps = backend.id_maps(tables, [None] * len(tables), rules)

    def add(part: pa.Table, number: int, counts: Int64s) -> None:
        for values in values_of(part, tables[number].columns):
            ids = np.empty((len(values), 1), dtype=np.int64)
            id_maps.write_ids([values], [number], ids)
            np.add.at(counts, ids[:, 0], 1)

    for group in _groups([rule.hashed_rows for rule in rules]):
        counts: list[Int64s] = [np.zeros(rules[number].hashed_rows, dtype=np.int64) for number in group]
        for part in rows.parts(train_rows) if group else ():
            list(pool.map(add, [part] * len(group), group, counts))
        yield from map(HashedCounts, counts if group else [None])


def _groups(table_rows: Sequence[int]) -> Iterator[list[int]]:
    """Groups of tables, by number, that are counted together, in order; an empty list stands for a too large table."""
    group: list[int] = []
    for number, rows in enumerate(table_rows):
        if group and rows + sum(table_rows[other] for other in group) > MOST_COUNTED_ROWS:
            yield group
            group = []
        if rows > MOST_COUNTED_ROWS:
            yield []
        else:
            group.append(number)
    if group:
        yield group
