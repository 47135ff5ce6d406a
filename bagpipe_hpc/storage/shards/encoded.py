"""Shards out of chunks that are already as HDF5 stores them: threads encode, HDF5 only puts the bytes in place.

HDF5 runs its filters under one lock, so compression keeps a single core busy there. What is read back is the same as
from `click_shards.write_shard`.

Shapes: `n` rows of samples.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.manifest import ShardInfo
from bagpipe_hpc.storage.shards.reader import CHUNK_ROWS, DATASETS, SHUFFLED, Samples, create_datasets

Encoded = NDArray[Any] | bytes
Encoder = Callable[[NDArray[Any], bool], Encoded | None]
"""Compresses a chunk, its bytes shuffled first if the second argument says so; None where that makes it no smaller."""


class EncodedChunk(NamedTuple):
    """One HDF5 chunk.

    Attributes:
        data: its bytes as they are stored.
        filter_mask: a bit for each filter of the dataset, set where it was not applied.
    """

    data: Encoded
    filter_mask: int


@dataclass(frozen=True)
class EncodedSamples:
    """Samples as chunks, all but a shard's last ones of `CHUNK_ROWS` rows.

    Attributes:
        rows: number of samples.
        positives: samples with label 1.
        like: samples without rows, of the same types and columns.
        chunks: the chunks of each of `DATASETS`, in order.
    """

    rows: int
    positives: int
    like: Samples
    chunks: tuple[list[EncodedChunk], ...]


def encode_samples(samples: Samples, shard_rows: int, encode: Encoder | None) -> EncodedSamples:
    """Cut samples into chunks and compress these.

    Args:
        samples: `[n]` samples that start at a chunk of their shard and end at one, or at the shard's end.
        shard_rows: samples of the whole shard.
        encode: compresses a chunk as the shard's compression says; None for `none`.
    """
    dense, sparse, label = samples
    chunk_rows = min(shard_rows, CHUNK_ROWS)
    return EncodedSamples(
        rows=len(label),
        positives=int(np.count_nonzero(label)),
        like=(dense[:0], sparse[:0], label[:0]),
        chunks=tuple(
            [
                _encode(values[first : first + chunk_rows], chunk_rows, name in SHUFFLED, encode)
                for first in (range(0, len(values), chunk_rows) if values.size else ())
            ]
            for name, values in zip(DATASETS, samples, strict=True)
        ),
    )


def write_encoded_shard(path: Path, rows: int, blocks: Iterable[EncodedSamples], compression: str) -> ShardInfo:
    """Write one shard, whole or not at all; the same blocks give the same bytes.

    Args:
        path: file to write.
        rows: number of samples of all blocks together, 1 or more.
        blocks: encoded samples in order.
        compression: what they were encoded with, one of `COMPRESSIONS`.

    Returns:
        The entry for the manifest.
    """
    positives = 0
    with atomic_write(path) as partial:
        with create_hdf5(partial) as file:
            first = 0
            for block in blocks:
                if first == 0:
                    create_datasets(file, rows, block.like, compression)
                for name, chunks in zip(DATASETS, block.chunks, strict=True):
                    dataset = file[name]
                    rest = (0,) * (dataset.ndim - 1)
                    for number, chunk in enumerate(chunks):
                        at = first + number * dataset.chunks[0]
                        dataset.id.write_direct_chunk((at, *rest), chunk.data, filter_mask=chunk.filter_mask)
                positives += block.positives
                first += block.rows
            if first != rows:
                raise ValueError(f"{path.name} got {first} rows instead of {rows}")
        return ShardInfo(path.name, rows, positives, partial.stat().st_size, file_sha256(partial))


def _encode(values: NDArray[Any], chunk_rows: int, shuffle: bool, encode: Encoder | None) -> EncodedChunk:
    chunk = np.ascontiguousarray(values)
    if len(chunk) < chunk_rows:  # A shard's last chunk is stored in full.
        padding = np.zeros((chunk_rows - len(chunk), *chunk.shape[1:]), dtype=chunk.dtype)
        chunk = np.concatenate([chunk, padding])
    if encode is None:
        return EncodedChunk(chunk, 0)
    encoded = encode(chunk, shuffle)
    if encoded is None:
        return EncodedChunk(chunk, 0b11 if shuffle else 0b1)
    return EncodedChunk(encoded, 0)
