"""Values of training rows that are too rare for an id, with their counts; a growing vocabulary adds to these counts.

An HDF5 file with two datasets for each table that has a vocabulary: `values/TABLE [W]`, ascending, of the type that the
vocabulary has, and `counts/TABLE [W]`, unsigned integers: how often the training rows of all days hold each value.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, ShardManifest
from bagpipe_hpc.storage.shards.shard_file import errors_name, open_shard, own_list
from bagpipe_hpc.storage.vocabularies.vocabulary import Int64s, TableValues, read_values

WAITING_NAME = "waiting.h5"


@dataclass(frozen=True, eq=False)
class WaitingValues:
    """Values of a table without an id, and how often training rows hold them.

    Attributes:
        values: distinct values `[W]`, ascending; texts by their UTF-8 bytes.
        counts: how often the training rows hold each value, int64 `[W]`, 1 or more.
    """

    values: TableValues
    counts: Int64s


def write_waiting(directory: Path, tables: Iterable[tuple[str, WaitingValues]]) -> FileInfo:
    """Write the waiting values of each table; whole or not at all, and the same bytes for the same values.

    Args:
        directory: the shard directory.
        tables: their names and values, each taken when the one before is written.

    Returns:
        The entry for the manifest.
    """
    path = directory / WAITING_NAME
    with atomic_write(path) as partial:
        with create_hdf5(partial) as file:
            for table, waiting in tables:
                kind = h5py.string_dtype() if waiting.values.dtype == np.object_ else waiting.values.dtype
                file.create_dataset(f"values/{table}", data=waiting.values, dtype=kind, track_times=False)
                smallest = np.min_scalar_type(int(waiting.counts.max(initial=0)))  # counts are small: a byte each
                file.create_dataset(f"counts/{table}", data=waiting.counts.astype(smallest), track_times=False)
        return FileInfo(path.name, partial.stat().st_size, file_sha256(partial))


def waiting_info(directory: Path) -> FileInfo | None:
    """The manifest's entry for the file in a directory; None where there is no file."""
    path = directory / WAITING_NAME
    return FileInfo(path.name, path.stat().st_size, file_sha256(path)) if path.is_file() else None


def read_waiting(directory: Path, manifest: ShardManifest, table: str) -> WaitingValues:
    """The waiting values of a table that has a vocabulary.

    Raises:
        DataError: the directory has none, or the file is missing or damaged.
    """
    if manifest.waiting is None:
        raise DataError(
            f"{directory}: does not say which values are too rare for an id (waiting), as of an older program or of "
            f"rows that were prepared with --like; {PREPARE_AGAIN}"
        )
    path = directory / manifest.waiting.file
    with open_shard(path) as file, errors_name(path):
        values = read_values(path, table, own_list(file, f"values/{table}"))
        counts = own_list(file, f"counts/{table}")
        if counts is None or counts.dtype.kind != "u" or len(counts) != len(values):
            raise DataError(f"{path}: counts/{table} holds no count for each value; {PREPARE_AGAIN}")
        return WaitingValues(values, counts[:].astype(np.int64))
