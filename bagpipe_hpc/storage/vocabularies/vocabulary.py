"""The vocabularies of prepared clicks: which raw value became which id, kept beside the shards.

An HDF5 file with a dataset for each table that is not hashed: `values/TABLE [V]`, the values in the order of their ids;
uint32, int64 or text, as the source format says. Id 0 stands for a missing value. Ids 1 .. B belong to the `B` unseen
buckets (attribute `unseen_buckets`), which share out every other value; where there are none, such values have id 0 as
well. The values have the ids from B + 1 on, but for those of `free/TABLE`, which no value has.

Beside these lie lists about the ids (`id_uses`): `counts/TABLE`, of hashed tables as well, and, where a vocabulary
grew, `last_use/TABLE` and `reborn/TABLE`.

In folders of older programs, without the attribute `format`, the values lie in `TABLE` itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.hdf5_attributes import plain_attribute
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, ShardManifest
from bagpipe_hpc.storage.shards.shard_file import errors_name, open_shard, own_list

VOCABULARIES_NAME = "vocabularies.h5"
TableValues = NDArray[np.uint32] | NDArray[np.int64] | NDArray[np.object_]
"""Distinct values of a table, `[V]`, in the order of their ids; texts are `str`."""
Int64s = NDArray[np.int64]
_FORMAT = 2
_MOST_ROWS = 1 << 62
_COPIED_BYTES = 1 << 20
_INTEGERS = (np.dtype(np.uint32), np.dtype(np.int64))


def _none() -> Int64s:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TableVocabulary:
    """Which value of a table has which id.

    Attributes:
        values: distinct values `[V]`, in the order of their ids.
        unseen_buckets: number B of buckets, ids 1 .. B, to which all other values are hashed; 0: those have id 0.
        free: ids above B that no value has, ascending, int64.
    """

    values: TableValues
    unseen_buckets: int = 0
    free: Int64s = field(default_factory=_none)

    @property
    def rows(self) -> int:
        """Rows of the table: its ids are 0 .. rows - 1."""
        return 1 + self.unseen_buckets + len(self.values) + len(self.free)

    @property
    def ids(self) -> Int64s:
        """The id of each value, `[V]`, ascending."""
        ids = np.arange(1 + self.unseen_buckets, self.rows, dtype=np.int64)
        return np.delete(ids, self.free - (1 + self.unseen_buckets)) if len(self.free) else ids


@dataclass(frozen=True, eq=False)
class TableUse:
    """How the ids of a table were used in training rows: those of the directory and of all that it was grown from.

    Attributes:
        counts: look-ups of the value that now has the id, also those from before it had it, int64 `[rows]`. Look-ups of
            missing values, and of values without an id of their own, count for the buckets, or for id 0.
        last_use: number of the last row that looks the value up, int64 `[rows]`, -1 where no value has the id; None in
            a directory that was not grown.
        reborn: ids that had another value in the directory that this was grown from, or in one before, ascending.
    """

    counts: Int64s
    last_use: Int64s | None = None
    reborn: Int64s = field(default_factory=_none)


def write_vocabularies(
    directory: Path,
    vocabularies: Mapping[str, TableVocabulary],
    unseen_buckets: int = 0,
    uses: Iterable[tuple[str, TableUse]] = (),
    train_rows: int = 0,
) -> FileInfo:
    """Write the vocabulary of each table, by its name; whole or not at all, and the same bytes for the same values.

    Args:
        directory: the shard directory.
        vocabularies: those of the tables that are not hashed, all with the same number of buckets.
        unseen_buckets: number of buckets B.
        uses: how the ids of a table were used, by its name; each is taken when the one before is written. Hashed tables
            may be among them.
        train_rows: number of the training rows in which they were used.

    Returns:
        The entry for the manifest.
    """
    path = directory / VOCABULARIES_NAME
    with atomic_write(path) as partial:
        with create_hdf5(partial) as file:
            file.attrs["format"] = _FORMAT
            file.attrs["unseen_buckets"] = unseen_buckets
            file.attrs["train_rows"] = train_rows
            for table, vocabulary in vocabularies.items():
                values = vocabulary.values
                kind = h5py.string_dtype() if values.dtype == np.object_ else values.dtype
                file.create_dataset(f"values/{table}", data=values, dtype=kind, track_times=False)
                if len(vocabulary.free):
                    file.create_dataset(f"free/{table}", data=vocabulary.free, track_times=False)
            for table, use in uses:
                for name, numbers in (("counts", use.counts), ("last_use", use.last_use), ("reborn", use.reborn)):
                    if numbers is not None and (len(numbers) or name == "counts"):
                        file.create_dataset(f"{name}/{table}", data=numbers, track_times=False)
        return FileInfo(path.name, partial.stat().st_size, file_sha256(partial))


def copy_vocabularies(source: Path, directory: Path, info: FileInfo) -> FileInfo:
    """Copy the vocabularies of another shard directory, byte for byte.

    Args:
        source: that directory.
        directory: where they are to be.
        info: what the manifest of `source` says of them.

    Raises:
        DataError: they cannot be read, or are no longer what it says.
        OSError: the copy cannot be written.
    """
    path = directory / VOCABULARIES_NAME
    with atomic_write(path) as partial:
        with partial.open("wb") as copy:
            copy.writelines(_pieces_of(source / info.file))
        copied = FileInfo(path.name, partial.stat().st_size, file_sha256(partial))
        if copied.sha256 != info.sha256:
            raise DataError(f"{source / info.file}: its SHA-256 is not the manifest's; it was changed or is damaged")
    return copied


def _pieces_of(path: Path) -> Iterator[bytes]:
    """The contents of a file, some at a time; only errors of reading it say that it cannot be read."""
    with errors_name(path), path.open("rb") as file:
        while piece := file.read(_COPIED_BYTES):
            yield piece


def read_vocabulary(directory: Path, manifest: ShardManifest, table: str) -> TableValues:
    """The values `[V]` of a table in the order of their ids.

    Where there are no unseen buckets and no free ids, `values[i]` has the id i + 1.

    Raises:
        DataError: as for `read_table_vocabulary`.
    """
    return read_table_vocabulary(directory, manifest, table).values


def read_table_vocabulary(directory: Path, manifest: ShardManifest, table: str) -> TableVocabulary:
    """Which value of a table has which id.

    Raises:
        DataError: the table's values were hashed, there is no such table, or the file is missing or damaged.
    """
    if manifest.vocabularies is None or table in manifest.hashed_tables:
        raise DataError(f"{directory}: the values of table {table} were hashed, so it has no vocabulary")
    rows = {info.name: info.rows for info in manifest.tables}.get(table)
    if rows is None:
        raise DataError(f"{directory}: has no table {table!r}; the first is {manifest.tables[0].name}")
    path = directory / manifest.vocabularies.file
    vocabulary = load_vocabularies(path, [table]).get(table)
    if vocabulary is None:
        raise DataError(f"{path}: holds no values of table {table}; {PREPARE_AGAIN}")
    if vocabulary.rows != rows:
        others = rows - vocabulary.rows + len(vocabulary.values)
        raise DataError(f"{path}: {table} has {len(vocabulary.values)} values instead of {others} as the manifest says")
    return vocabulary


def read_unseen_buckets(directory: Path, manifest: ShardManifest) -> int:
    """The number of buckets that each table with a vocabulary has for values without an id.

    Raises:
        DataError: the file of vocabularies is missing or damaged.
    """
    if manifest.vocabularies is None:
        return 0
    path = directory / manifest.vocabularies.file
    with open_shard(path) as file, errors_name(path):
        return vocabulary_format(path, file)[0]


def load_vocabularies(path: Path, tables: Sequence[str]) -> dict[str, TableVocabulary]:
    """The vocabularies of those of the tables that the file has, whatever a manifest says of them.

    Raises:
        DataError: the file is missing or damaged, or holds no vocabularies.
    """
    with open_shard(path) as file, errors_name(path):
        buckets, prefix = vocabulary_format(path, file)
        return {
            table: _vocabulary(path, table, file, prefix, buckets) for table in tables if f"{prefix}{table}" in file
        }


def vocabulary_format(path: Path, file: h5py.File) -> tuple[int, str]:
    """The number of unseen buckets, and the prefix of the names of the tables' datasets.

    Raises:
        DataError: the file is damaged, or another version of the program wrote it.
    """
    if "format" not in file.attrs:
        return 0, ""
    found, buckets = plain_attribute(file, "format"), plain_attribute(file, "unseen_buckets")
    if not (np.ndim(found) == 0 and found == _FORMAT):
        raise DataError(f"{path}: has format {found!r:.80} instead of {_FORMAT}; another version of bagpipe wrote it")
    if not (isinstance(buckets, np.integer) and 0 <= buckets < _MOST_ROWS):
        raise DataError(f"{path}: unseen_buckets = {buckets!r:.80} instead of a whole number; {PREPARE_AGAIN}")
    return int(buckets), "values/"


def _vocabulary(path: Path, table: str, file: h5py.File, prefix: str, buckets: int) -> TableVocabulary:
    values = read_values(path, table, own_list(file, f"{prefix}{table}"))
    if not prefix or f"free/{table}" not in file:
        return TableVocabulary(values, buckets)
    free = read_int64s(path, file, f"free/{table}")
    first, rows = 1 + buckets, 1 + buckets + len(values) + len(free)
    if len(free) and not (first <= free[0] and free[-1] < rows and (np.diff(free) > 0).all()):
        raise DataError(f"{path}: free/{table} holds no ascending ids from {first} to {rows - 1}; {PREPARE_AGAIN}")
    return TableVocabulary(values, buckets, free)


def read_int64s(path: Path, file: h5py.File, name: str) -> Int64s:
    """A list of integers, int64 `[n]`.

    Raises:
        DataError: there is no such list.
    """
    dataset = own_list(file, name)
    if dataset is None or dataset.dtype != np.int64:
        raise DataError(f"{path}: {name} is no list of 64-bit integers; {PREPARE_AGAIN}")
    found: Int64s = dataset[:]
    return found


def read_values(path: Path, table: str, dataset: Any, first: int = 0, last: int | None = None) -> TableValues:
    """Values `first` up to `last` of a table; uint32, int64 or texts.

    Args:
        path: of the file, for messages.
        table: its name.
        dataset: the list of values, as `own_list` gives it.
        first: number of the first value.
        last: one more than the number of the last value; None for all that follow.

    Raises:
        DataError: the dataset has another type.
    """
    if dataset is not None and dataset.dtype in _INTEGERS:
        integers: TableValues = dataset[first:last]
        return integers
    if dataset is not None and h5py.check_string_dtype(dataset.dtype):
        with suppress(UnicodeDecodeError):
            texts: TableValues = dataset.asstr()[first:last]
            return texts
    raise DataError(f"{path}: holds no values of table {table}; {PREPARE_AGAIN}")
