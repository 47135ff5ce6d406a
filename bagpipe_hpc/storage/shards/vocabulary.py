"""The vocabularies of prepared clicks: which raw value became which id, kept beside the shards.

An HDF5 file with a dataset for each table: `[V]`, the values in the order of their ids, which start at 1; uint32, int64
or text, as the source format says. Id 0 stands for every other value and for a missing one. Tables whose values are
hashed are left out.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, ShardManifest
from bagpipe_hpc.storage.shards.shard_file import errors_name, open_shard

VOCABULARIES_NAME = "vocabularies.h5"
TableValues = NDArray[np.uint32] | NDArray[np.int64] | NDArray[np.object_]
"""Distinct values of a table, `[V]`, in the order of their ids; texts are `str`."""
_INTEGERS = (np.dtype(np.uint32), np.dtype(np.int64))


def write_vocabularies(directory: Path, vocabularies: Mapping[str, TableValues]) -> FileInfo:
    """Write the values `[V]` of each table, by its name; whole or not at all, and the same bytes for the same values.

    Returns:
        The entry for the manifest.
    """
    path = directory / VOCABULARIES_NAME
    with atomic_write(path) as partial:
        with create_hdf5(partial) as file:
            for table, values in vocabularies.items():
                kind = h5py.string_dtype() if values.dtype == np.object_ else values.dtype
                file.create_dataset(table, data=values, dtype=kind, track_times=False)
        return FileInfo(path.name, partial.stat().st_size, file_sha256(partial))


def read_vocabulary(directory: Path, manifest: ShardManifest, table: str) -> TableValues:
    """The values `[V]` of a table; `values[i]` has id i + 1.

    Raises:
        DataError: the table's values were hashed, there is no such table, or the file is missing or damaged.
    """
    if manifest.vocabularies is None or table in manifest.hashed_tables:
        raise DataError(f"{directory}: the values of table {table} were hashed, so it has no vocabulary")
    rows = {info.name: info.rows for info in manifest.tables}.get(table)
    if rows is None:
        raise DataError(f"{directory}: has no table {table!r}; the first is {manifest.tables[0].name}")
    path = directory / manifest.vocabularies.file
    values = load_vocabularies(path, [table]).get(table)
    if values is None:
        raise DataError(f"{path}: holds no values of table {table}; {PREPARE_AGAIN}")
    if len(values) != rows - 1:
        raise DataError(f"{path}: {table} has {len(values)} values instead of {rows - 1} as the manifest says")
    return values


def load_vocabularies(path: Path, tables: Sequence[str]) -> dict[str, TableValues]:
    """The values `[V]` of each of the tables that the file holds, whatever a manifest says of them.

    Raises:
        DataError: the file is missing or damaged, or is none of vocabularies.
    """
    with open_shard(path) as file, errors_name(path):
        return {table: _values(path, table, file[table]) for table in tables if table in file}


def _values(path: Path, table: str, dataset: Any) -> TableValues:
    is_list = isinstance(dataset, h5py.Dataset) and dataset.ndim == 1
    if is_list and dataset.dtype in _INTEGERS:
        integers: TableValues = dataset[:]
        return integers
    if is_list and h5py.check_string_dtype(dataset.dtype):
        with suppress(UnicodeDecodeError):
            texts: TableValues = dataset.asstr()[:]
            return texts
    raise DataError(f"{path}: holds no values of table {table}; {PREPARE_AGAIN}")
