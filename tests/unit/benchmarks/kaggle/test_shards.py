"""Shards over the full table sizes hold ids by popularity, and are like any other to their readers."""

from pathlib import Path

import numpy as np

from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS
from benchmarks.kaggle.rows import TABLE_ROWS
from benchmarks.kaggle.shards import DENSE_FEATURES, write_kaggle_shards

SAMPLES = CHUNK_ROWS + 1000


def test_the_shards_are_complete_and_their_ids_spread_over_the_tables(tmp_path: Path) -> None:
    write_kaggle_shards(tmp_path, SAMPLES)
    manifest = load_manifest(tmp_path)
    verify_shards(tmp_path, manifest, "full")
    assert manifest.table_rows == TABLE_ROWS
    assert (manifest.rows("train"), manifest.rows("test")) == (SAMPLES, 0)
    assert 0.2 < manifest.label_rate < 0.3
    with ClickShards(tmp_path, manifest, "train") as shards:
        ids, dense = shards.read_sparse(0, SAMPLES), shards.read_dense(0, SAMPLES)
    largest = int(np.argmax(TABLE_ROWS))
    assert ids[:, largest].max() > TABLE_ROWS[largest] // 2
    assert np.median(ids[:, largest]) < TABLE_ROWS[largest] // 100  # a few ids get most look-ups
    assert dense.shape == (SAMPLES, DENSE_FEATURES)
    assert (dense >= 0).all()


def test_equal_seeds_give_equal_samples(tmp_path: Path) -> None:
    for folder, seed in (("first", 1), ("second", 1), ("other", 2)):
        write_kaggle_shards(tmp_path / folder, 50, seed)
    first, second, other = (load_manifest(tmp_path / folder).train[0] for folder in ("first", "second", "other"))
    assert first.sha256 == second.sha256 != other.sha256


def test_blocks_differ(tmp_path: Path) -> None:
    write_kaggle_shards(tmp_path, 2 * CHUNK_ROWS)
    with ClickShards(tmp_path, load_manifest(tmp_path), "train") as shards:
        first, second = shards.read_sparse(0, CHUNK_ROWS), shards.read_sparse(CHUNK_ROWS, 2 * CHUNK_ROWS)
    assert (first != second).any(axis=1).all()
