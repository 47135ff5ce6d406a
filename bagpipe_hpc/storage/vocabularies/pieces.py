"""The vocabulary of a table, read piece by piece: it may be larger than memory.

Shapes: `V` values of the table, `n` those of a piece.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, ShardManifest
from bagpipe_hpc.storage.shards.shard_file import errors_name, open_shard, own_list
from bagpipe_hpc.storage.vocabularies.vocabulary import Int64s, TableValues, read_int64s, read_values, vocabulary_format

PIECE_VALUES = 1 << 17
"""Values of a piece."""


class VocabularyPieces:
    """Which value of a table has which id. Made by `open_vocabulary`; of the file it holds only the free ids in memory.

    Attributes:
        count: number of values V.
        unseen_buckets: number B of buckets, ids 1 .. B, to which all other values are hashed; 0: those have id 0.
        is_text: whether values are texts.

    Args:
        path: of the file.
        table: name of the table.
        dataset: its values.
        unseen_buckets: B.
        free: ids above B that no value has, ascending.
    """

    def __init__(self, path: Path, table: str, dataset: h5py.Dataset, unseen_buckets: int, free: Int64s) -> None:
        self.count = len(dataset)
        self.unseen_buckets = unseen_buckets
        self.is_text = bool(h5py.check_string_dtype(dataset.dtype))
        self._path, self._table, self._dataset = path, table, dataset
        # How many values have a smaller id than each of the free ones.
        self._values_below = free - np.arange(len(free)) - (1 + unseen_buckets)

    @property
    def rows(self) -> int:
        """Rows of the table: its ids are 0 .. rows - 1."""
        return 1 + self.unseen_buckets + self.count + len(self._values_below)

    def values(self, first: int, last: int) -> TableValues:
        """The values number `first` up to `last`, in the order of their ids, `[n]`.

        Raises:
            DataError: the file is damaged.
        """
        with errors_name(self._path):
            return read_values(self._path, self._table, self._dataset, first, last)

    def ids(self, first: int, last: int) -> Int64s:
        """The ids of these values, `[n]`, ascending."""
        numbers = np.arange(first, last, dtype=np.int64)
        free: Int64s = np.searchsorted(self._values_below, numbers, side="right")
        return numbers + free + (1 + self.unseen_buckets)

    def number_of(self, row: int) -> int:
        """How many values have a smaller id than `row`."""
        above = row - (1 + self.unseen_buckets)
        # The free ids, less 1 + B: the j-th one is its `_values_below` plus j.
        free = int(np.searchsorted(self._values_below + np.arange(len(self._values_below)), above))
        return max(0, above - free)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Where pieces of the values begin and end."""
        for first in range(0, self.count, PIECE_VALUES):
            yield first, min(first + PIECE_VALUES, self.count)


@contextmanager
def open_vocabulary(directory: Path, manifest: ShardManifest, table: str) -> Iterator[VocabularyPieces]:
    """Open the vocabulary of a table that is not hashed.

    Raises:
        DataError: the table's values were hashed, there is no such table, or the file is missing or damaged.
    """
    if manifest.vocabularies is None or table in manifest.hashed_tables:
        raise DataError(f"{directory}: the values of table {table} were hashed, so it has no vocabulary")
    path = directory / manifest.vocabularies.file
    (rows,) = (info.rows for info in manifest.tables if info.name == table)
    with open_shard(path) as file:
        with errors_name(path):
            pieces = _opened(path, table, file)
        if pieces.rows != rows:
            others = rows - pieces.rows + pieces.count
            raise DataError(f"{path}: {table} has {pieces.count} values instead of {others} as the manifest says")
        yield pieces


def _opened(path: Path, table: str, file: Any) -> VocabularyPieces:
    buckets, prefix = vocabulary_format(path, file)
    if f"{prefix}{table}" not in file:
        raise DataError(f"{path}: holds no values of table {table}; {PREPARE_AGAIN}")
    dataset = own_list(file, f"{prefix}{table}")
    read_values(path, table, dataset, 0, 0)  # checks its type
    has_free = prefix and f"free/{table}" in file
    free = read_int64s(path, file, f"free/{table}") if has_free else np.empty(0, dtype=np.int64)
    pieces = VocabularyPieces(path, table, dataset, buckets, free)
    if len(free) and not (buckets < free[0] and free[-1] < pieces.rows and (np.diff(free) > 0).all()):
        raise DataError(f"{path}: free/{table} holds no ascending ids from {buckets + 1} on; {PREPARE_AGAIN}")
    return pieces
