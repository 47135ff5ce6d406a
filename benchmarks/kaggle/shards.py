"""Shards over Criteo Kaggle's full table sizes: ids drawn by popularity, other values at random.

Legend: `n` samples of a block, `N` dense features.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bagpipe_hpc.rows.partition import table_offsets
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import SCHEMA_VERSION, ShardManifest, save_manifest
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, Samples
from bagpipe_hpc.storage.shards.writer import write_shard
from benchmarks.kaggle.rows import TABLE_ROWS, draw_batches

DENSE_FEATURES = 13
ZIPF = 1.05
_CLICK_RATE = 0.25


def write_kaggle_shards(directory: Path, samples: int, seed: int = 1) -> None:
    """Write training samples as one shard and its manifest; there are no test samples.

    Dense features are logarithms of log-normal counts, labels are independent of everything: such data can be trained
    on, and is as fast as any, but has nothing to learn.

    Args:
        directory: the shard directory, which is made.
        samples: number of samples, 1 or more.
        seed: same seed, same samples.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # Uncompressed: random numbers do not get smaller.
    shard = write_shard(directory / "train-00000.h5", samples, _blocks(samples, seed), compression="none")
    tables = tuple(TableInfo(f"C{number}", rows) for number, rows in enumerate(TABLE_ROWS, start=1))
    manifest = ShardManifest(SCHEMA_VERSION, "kaggle-sizes", DENSE_FEATURES, tables, train=(shard,), test=())
    save_manifest(directory, manifest)


def _blocks(samples: int, seed: int) -> Iterator[Samples]:
    first_rows = table_offsets(TABLE_ROWS)[:-1]
    for number, first in enumerate(range(0, samples, CHUNK_ROWS)):
        count = min(CHUNK_ROWS, samples - first)
        rng = np.random.default_rng([seed, number])
        (rows,) = draw_batches(1, count, ZIPF, seed=int(rng.integers(1 << 32)))
        dense = np.log1p(rng.lognormal(1.5, 1.5, size=(count, DENSE_FEATURES)).astype(np.float32))
        labels = (rng.random(count) < _CLICK_RATE).astype(np.uint8)
        yield Samples(dense, (rows - first_rows).astype(np.int32), labels)
