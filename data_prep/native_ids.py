"""Vocabularies and ids by native code, equal to those of `vocabulary`, the definition.

Shapes: `n` rows, `F` tables, `V` values of a vocabulary.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.kernels.value_ids import Column, IdTables, ValueCounter
from data_prep.criteo import TABLE_NAMES
from data_prep.parsed_rows import ParsedRows
from data_prep.vocabulary import Ids, by_count


def build_vocabularies(
    pool: ThreadPoolExecutor, rows: ParsedRows, train_rows: int, min_count: int, most_values: int | None
) -> list[NDArray[np.uint32] | None]:
    """As `vocabulary.build_vocabularies`; memory is 16 to 32 bytes for each distinct value of all columns."""
    counters = {name: ValueCounter() for name in TABLE_NAMES}
    for part in rows.parts(train_rows):
        # Waits for all columns: a counter is not for two threads at once.
        list(pool.map(count_column, counters.values(), [part.column(name) for name in counters]))
        if most_values is not None:
            counters = {name: counter for name, counter in counters.items() if counter.values <= most_values}
    built = pool.map(lambda counter: by_count(*counter.tally(min_count)), counters.values())
    vocabularies = dict(zip(counters, built, strict=True))
    return [vocabularies.get(name) for name in TABLE_NAMES]


def count_column(counter: ValueCounter, column: pa.ChunkedArray) -> None:
    """Count more rows of a column; missing values do not count."""
    for chunk in column.chunks:
        counter.add(_as_column(chunk), len(chunk))


class IdMaps:
    """As `vocabulary.IdMaps`.

    Args:
        vocabularies: distinct values of each table, `[V]`, in the order of their ids; None where they are hashed.
        hashed_rows: rows of a table whose values are hashed, 2 or more.
    """

    def __init__(self, vocabularies: Sequence[NDArray[np.uint32] | None], hashed_rows: int) -> None:
        self._tables = IdTables(vocabularies, hashed_rows)

    def write_ids(self, columns: Sequence[pa.UInt32Array], ids: Ids) -> None:
        """Write the ids of `n` rows to `ids [n, F]`, contiguous."""
        self._tables.map_rows([_as_column(column) for column in columns], ids)


def _as_column(array: pa.UInt32Array) -> Column:
    present, values = array.buffers()
    return Column(
        np.frombuffer(values, np.uint32), np.frombuffer(present, np.uint8) if array.null_count else None, array.offset
    )
