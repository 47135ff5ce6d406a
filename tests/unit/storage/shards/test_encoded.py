"""Chunks that were encoded outside of HDF5 are read back as the samples that they were."""

import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.storage.shards.encoded import Encoder, encode_samples, write_encoded_shard
from bagpipe_hpc.storage.shards.reader import CHUNK_ROWS, Samples, write_shard


def samples(rows: int, seed: int = 1) -> Samples:
    rng = np.random.default_rng(seed)
    ids = (rng.zipf(1.2, (rows, 26)) % 5000).astype(np.int32)
    return np.log1p(rng.zipf(1.5, (rows, 13)) % 999).astype(np.float32), ids, rng.integers(0, 2, rows, dtype=np.uint8)


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
    pieces = [
        tuple(values[first : first + 2 * CHUNK_ROWS] for values in whole) for first in range(0, rows, 2 * CHUNK_ROWS)
    ]
    encoded = [encode_samples(piece, rows, encoder) for piece in pieces]  # type: ignore[arg-type]
    shard = write_encoded_shard(tmp_path / "a.h5", rows, encoded, compression)
    filtered = write_shard(tmp_path / "b.h5", rows, [whole], compression)
    assert (shard.rows, shard.positives) == (filtered.rows, filtered.positives)
    with h5py.File(tmp_path / "a.h5") as file, h5py.File(tmp_path / "b.h5") as other:
        for name, values in zip(("dense", "sparse", "label"), whole, strict=True):
            assert np.array_equal(file[name][:], values)
            for option in ("shape", "dtype", "chunks", "compression", "compression_opts", "shuffle", "fletcher32"):
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
