"""Chunks that were encoded outside of HDF5 are read back as the samples that they were."""

import zlib
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.storage.shards.encoded import Encoder, encode_samples, write_encoded_shard
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, RaggedColumn, Samples
from bagpipe_hpc.storage.shards.writer import write_shard


def samples(rows: int, seed: int = 1) -> Samples:
    rng = np.random.default_rng(seed)
    ids = (rng.zipf(1.2, (rows, 26)) % 5000).astype(np.int32)
    dense = np.log1p(rng.zipf(1.5, (rows, 13)) % 999).astype(np.float32)
    lengths = rng.integers(0, 5, rows) * (rng.random(rows) < 0.8)
    values = rng.integers(0, 5000, lengths.sum(), dtype=np.int32)
    ragged = {
        "plain": RaggedColumn(lengths[::-1], values),
        "weighted": RaggedColumn(lengths, values[::-1], rng.random(len(values), dtype=np.float32)),
    }
    label = rng.integers(0, 2, (rows, 2), dtype=np.uint8)
    return Samples(dense, ids, label, ragged, rng.random(rows, dtype=np.float32))


def piece_of(whole: Samples, first: int, last: int) -> Samples:
    assert whole.weight is not None
    parts = (whole.dense[first:last], whole.sparse[first:last], whole.label[first:last])
    ragged = {name: column.part(first, last) for name, column in whole.ragged.items()}
    return Samples(*parts, ragged, whole.weight[first:last])


def gzip(chunk: np.ndarray, shuffle: bool) -> bytes:
    planes = chunk.reshape(-1).view(np.uint8).reshape(-1, chunk.itemsize)
    return zlib.compress((planes.T if shuffle else planes).tobytes())


def only_ids(chunk: np.ndarray, shuffle: bool) -> bytes | None:
    """Finds nothing to compress in dense features and labels."""
    return gzip(chunk, shuffle) if shuffle else None


@pytest.mark.parametrize(("compression", "encoder"), [("none", None), ("gzip", gzip), ("gzip", only_ids)])
@pytest.mark.parametrize("rows", [1, 500, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS - 5])
def test_samples_come_back(tmp_path: Path, compression: str, encoder: Encoder | None, rows: int) -> None:
    whole = samples(rows)
    pieces = [piece_of(whole, first, min(rows, first + 2 * CHUNK_ROWS)) for first in range(0, rows, 2 * CHUNK_ROWS)]
    encoded = [encode_samples(piece, rows, encoder) for piece in pieces]
    shard = write_encoded_shard(tmp_path / "a.h5", rows, encoded, compression, encoder)
    filtered = write_shard(tmp_path / "b.h5", rows, [whole], compression)
    assert replace(shard, file="b.h5", bytes=filtered.bytes, sha256=filtered.sha256) == filtered
    expected: dict[str, np.ndarray] = dict(whole.columns)
    for name, column in whole.ragged.items():
        expected[f"ragged/{name}/offsets"] = np.concatenate([[0], np.cumsum(column.lengths)])
        expected[f"ragged/{name}/values"] = column.values
        if column.weights is not None:
            expected[f"ragged/{name}/weights"] = column.weights
    with h5py.File(tmp_path / "a.h5") as file, h5py.File(tmp_path / "b.h5") as other:
        for name, values in expected.items():
            for stored in (file[name], other[name]):
                assert stored.dtype == values.dtype
                assert np.array_equal(stored[:], values)
            for option in (
                "shape",
                "dtype",
                "chunks",
                "compression",
                "compression_opts",
                "shuffle",
                "fletcher32",
                "maxshape",
            ):
                assert getattr(file[name], option) == getattr(other[name], option)


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    blocks = [encode_samples(samples(100), 100, gzip)]
    assert (
        write_encoded_shard(tmp_path / "a.h5", 100, blocks, "gzip").sha256
        == write_encoded_shard(tmp_path / "b.h5", 100, blocks, "gzip").sha256
    )


def test_too_few_rows_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 100 rows instead of 200"):
        write_encoded_shard(tmp_path / "a.h5", 200, [encode_samples(samples(100), 200, None)], "none")
    assert list(tmp_path.iterdir()) == []
