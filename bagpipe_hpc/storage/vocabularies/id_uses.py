"""What is known of the ids of a table beside their values: how often they are looked up, and which were given anew.

This lies in the file of vocabularies, in lists for each table (`vocabulary`).
"""

from pathlib import Path

import numpy as np

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.hdf5_attributes import plain_attribute
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, ShardManifest
from bagpipe_hpc.storage.shards.shard_file import errors_name, open_shard
from bagpipe_hpc.storage.vocabularies.vocabulary import Int64s, read_int64s

MOST_COUNTED_ROWS = 1 << 24
"""Hashed tables of more rows have no counts: a list of these takes 128 MiB."""


def read_counts(directory: Path, manifest: ShardManifest, table: str) -> Int64s:
    """How often the training rows look up each id of a table, int64 `[rows]`.

    Id 0 counts missing values, and those without an id of their own where there are no unseen buckets. Of a directory
    that was grown, the rows of all directories before it count as well (`vocabulary.TableUse`). Different values of a
    hashed table may share an id.

    Raises:
        DataError: the table is unknown, or hashed to more than `MOST_COUNTED_ROWS`; the directory is of an older
            program that kept no counts; or the file is missing or damaged.
    """
    counts = _read(directory, manifest, table, "counts")
    if counts is None and table in manifest.hashed_tables:
        raise DataError(
            f"{directory}: has no counts of the ids of table {table}: it is hashed to more than {MOST_COUNTED_ROWS} "
            "rows, or an older program prepared it"
        )
    if counts is None:
        raise DataError(f"{directory}: has no counts of ids, as of an older program; {PREPARE_AGAIN}")
    if len(counts) and counts.min() < 0:
        raise DataError(f"{directory}: a count of table {table} is {counts.min()}; {PREPARE_AGAIN}")
    return counts


def tables_with_counts(directory: Path, manifest: ShardManifest) -> list[str]:
    """Names of the tables whose counts were kept (`read_counts`), in the manifest's order.

    Raises:
        DataError: the file of vocabularies is missing or damaged.
    """
    path = _path(directory, manifest)
    with open_shard(path) as file, errors_name(path):
        if "format" not in file.attrs:
            return []
        return [table.name for table in manifest.tables if f"counts/{table.name}" in file]


def read_last_use(directory: Path, manifest: ShardManifest, table: str) -> Int64s | None:
    """Number of the training row that looked up each id last, int64 `[rows]`, counted over all directories up to this.

    Returns:
        -1 for an id that no value has; None where the directory was not grown.

    Raises:
        DataError: as for `read_counts`.
    """
    return _read(directory, manifest, table, "last_use")


def read_reborn(directory: Path, manifest: ShardManifest, table: str) -> Int64s:
    """Ids of a table that have another value than in the directory that it was grown from, or in one before that.

    What was trained for these ids is of no use: their rows begin anew, like those that the table gained.

    Returns:
        int64, ascending; none of a table that is hashed, or of a directory that was not grown.

    Raises:
        DataError: the file is missing or damaged, or holds ids that the table does not have.
    """
    if manifest.grown_from is None or table in manifest.hashed_tables:
        return np.empty(0, dtype=np.int64)
    reborn = _read(directory, manifest, table, "reborn")
    if reborn is None:
        return np.empty(0, dtype=np.int64)
    rows = {info.name: info.rows for info in manifest.tables}[table]
    if len(reborn) and not (reborn[0] >= 1 and reborn[-1] < rows and (np.diff(reborn) > 0).all()):
        raise DataError(f"{directory}: reborn/{table} holds no ascending ids from 1 to {rows - 1}; {PREPARE_AGAIN}")
    return reborn


def read_train_rows(directory: Path, manifest: ShardManifest) -> int:
    """Number of the training rows in which ids were counted: the directory's and those of all that it was grown from.

    Raises:
        DataError: the directory is of an older program, or the file is missing or damaged.
    """
    path = _path(directory, manifest)
    with open_shard(path) as file, errors_name(path):
        found = plain_attribute(file, "train_rows")
    if not (isinstance(found, np.integer) and manifest.rows("train") <= found < 1 << 62):
        raise DataError(f"{path}: train_rows = {found!r:.80} is no number of rows; {PREPARE_AGAIN}")
    return int(found)


def _path(directory: Path, manifest: ShardManifest) -> Path:
    if manifest.vocabularies is None:
        raise DataError(f"{directory}: has no file of vocabularies; {PREPARE_AGAIN}")
    return directory / manifest.vocabularies.file


def _read(directory: Path, manifest: ShardManifest, table: str, name: str) -> Int64s | None:
    """A list about the ids of a table, a number for each of its rows, or any numbers for `reborn`; None if absent."""
    rows = {info.name: info.rows for info in manifest.tables}.get(table)
    if rows is None:
        raise DataError(f"{directory}: has no table {table!r:.80}; the first is {manifest.tables[0].name}")
    if table in manifest.hashed_tables and name == "last_use":
        raise DataError(f"{directory}: the values of table {table} are hashed; when its ids were used last is not kept")
    path = _path(directory, manifest)
    with open_shard(path) as file, errors_name(path):
        if f"{name}/{table}" not in file or "format" not in file.attrs:
            return None
        found = read_int64s(path, file, f"{name}/{table}")
    if name != "reborn" and len(found) != rows:
        raise DataError(f"{path}: {name}/{table} has {len(found)} numbers instead of {rows} as the manifest says")
    return found
