"""Counts how often the training rows look up each row, for placements by statistics (`rows.access_statistics`).

It reads the rows once; memory is 8 bytes for each row of the tables, and 16 for each used row of one table.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.rows.access_statistics import AccessStatistics, TableAccesses, write_statistics
from bagpipe_hpc.rows.partition import table_offsets
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.shards.counting import require_countable
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.reader import ClickShards

_READ_SAMPLES = 1 << 16
_ROW_BYTES = 8
"""Memory for each row: its count."""


def save_statistics(directory: Path, manifest: ShardManifest, path: Path) -> AccessStatistics:
    """Count the look-ups of the training split, and write them to a file.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        path: the file to write.

    Raises:
        DataError: there are no training samples, their look-ups are drawn, or a shard is missing or damaged.
        CapacityError: this host has no memory for a count of each row.
        OSError: the file cannot be written.
    """
    samples = manifest.rows("train")
    if not samples:
        raise DataError(f"{directory}: has no training samples to count; name a folder that has")
    require_countable(directory, manifest, _ROW_BYTES)
    counts, samples_with = _count(directory, manifest)
    names = [table.name for table in manifest.tables]
    tables = [
        TableAccesses.of_counts(name, of_rows, samples, with_any)
        for name, of_rows, with_any in zip(names, counts, samples_with, strict=True)
    ]
    data = manifest.digest("train")
    with atomic_write(path) as partial, partial.open("wb") as file:
        write_statistics(file, data, tables, counts, samples)
    return AccessStatistics(path, data, samples, dict(zip(names, tables, strict=True)))


def _count(directory: Path, manifest: ShardManifest) -> tuple[list[NDArray[np.int64]], list[int]]:
    """For each table, the look-ups of each row, int64 `[rows]`, and how many samples look up anything in it."""
    offsets = table_offsets(manifest.table_rows)
    counts = np.zeros(offsets[-1], dtype=np.int64)
    samples_with = np.zeros(len(manifest.tables), dtype=np.int64)
    with ClickShards(directory, manifest, "train") as shards:
        for first in range(0, shards.rows, _READ_SAMPLES):
            bags = shards.read_look_ups(first, min(first + _READ_SAMPLES, shards.rows))
            rows, look_ups = np.unique(bags.plus(offsets[list(manifest.feature_tables)]).values, return_counts=True)
            counts[rows] += look_ups
            is_used = np.zeros((bags.samples, len(manifest.tables)), dtype=np.bool_)
            for feature, table in enumerate(manifest.feature_tables):
                is_used[:, table] |= bags.lengths[:, feature] > 0
            samples_with += is_used.sum(axis=0)
    return np.split(counts, offsets[1:-1]), samples_with.tolist()
