"""Vocabularies and ids by native code, equal to those of `vocabulary`, the definition.

Shapes: `n` rows, `F` tables, `V` values of a vocabulary.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.kernels.value_ids import Column, IdTables, ValueCounter, hash_rows
from data_prep.criteo import TABLE_NAMES
from data_prep.parsed_rows import ParsedRows
from data_prep.vocabulary import Ids, by_count


def build_vocabularies(
    pool: ThreadPoolExecutor, rows: ParsedRows, train_rows: int, min_count: int
) -> list[NDArray[np.uint32]]:
    """As `vocabulary.build_vocabularies`; memory is 16 to 32 bytes for each distinct value of all columns."""
    counters = [ValueCounter() for _ in TABLE_NAMES]
    for part in rows.parts(train_rows):
        # Waits for all columns: a counter is not for two threads at once.
        list(pool.map(count_column, counters, [part.column(name) for name in TABLE_NAMES]))
    return list(pool.map(lambda counter: by_count(*counter.tally(min_count)), counters))


def count_column(counter: ValueCounter, column: pa.ChunkedArray) -> None:
    """Count more rows of a column; missing values do not count."""
    for chunk in column.chunks:
        counter.add(_as_column(chunk), len(chunk))


class VocabularyIds:
    """Ids 1 .. V for the values of each table's vocabulary, 0 for others and missing ones.

    Args:
        vocabularies: distinct values of each table, `[V]`, in the order of their ids.
    """

    def __init__(self, vocabularies: Sequence[NDArray[np.uint32]]) -> None:
        self._tables = IdTables(vocabularies)

    def write_ids(self, columns: Sequence[pa.UInt32Array], ids: Ids) -> None:
        """Write the ids of `n` rows to `ids [n, F]`, contiguous."""
        self._tables.map_rows([_as_column(column) for column in columns], ids)


class HashedIds:
    """As `vocabulary.HashedIds`, for all tables.

    Args:
        rows: rows of each table, 2 or more.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def write_ids(self, columns: Sequence[pa.UInt32Array], ids: Ids) -> None:
        """Write the ids of `n` rows to `ids [n, F]`, contiguous."""
        hash_rows([_as_column(column) for column in columns], self._rows, ids)


def _as_column(array: pa.UInt32Array) -> Column:
    present, values = array.buffers()
    return Column(
        np.frombuffer(values, np.uint32), np.frombuffer(present, np.uint8) if array.null_count else None, array.offset
    )
