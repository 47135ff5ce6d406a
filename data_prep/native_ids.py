"""Vocabularies and ids by native code, equal to those of `vocabulary`, the definition.

Shapes: `n` rows, `F` tables, `V` values of a vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.kernels.value_ids import Column, IdTables, ValueCounter, hash_rows
from data_prep.vocabulary import Ids, by_count


def frequent_values(column: pa.ChunkedArray, min_count: int) -> NDArray[np.uint32]:
    """As `vocabulary.frequent_values`; memory is up to 50 bytes for each distinct value."""
    counter = ValueCounter()
    for chunk in column.chunks:
        counter.add(_as_column(chunk), len(chunk))
    return by_count(*counter.tally(min_count))


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
