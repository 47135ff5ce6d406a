"""Writes shards from chunks that are encoded already: threads encode them, and HDF5 only stores the bytes.

HDF5 runs its filters under one lock, so that it compresses on a single core. What is read back is the same as from
`writer.write_shard`.

Shapes: `n` rows of samples.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.entries import ShardInfo
from bagpipe_hpc.storage.shards.ragged_datasets import PutChunk
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, RaggedColumn, Samples
from bagpipe_hpc.storage.shards.writer import SHUFFLED, create_datasets, shard_info

Encoded = NDArray[Any] | bytes
Encoder = Callable[[NDArray[Any], bool], Encoded | None]
"""Compresses a chunk, shuffling its bytes first if the second argument is true; None where that makes it no smaller."""


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
    """Samples as chunks of `CHUNK_ROWS` rows each; only a shard's last chunks may have fewer.

    Attributes:
        rows: number of samples.
        positives: samples with 1 for each label, an integer or `[K]`.
        like: samples without rows, of the same types and columns.
        chunks: the chunks of each dataset with a row for each sample, in order.
        ragged: the ragged features, which are not yet encoded: their chunks do not end where these samples do.
    """

    rows: int
    positives: Any
    like: Samples
    chunks: dict[str, list[EncodedChunk]]
    ragged: Mapping[str, RaggedColumn]


def encode_samples(samples: Samples, shard_rows: int, encode: Encoder | None) -> EncodedSamples:
    """Cut samples into chunks and compress these.

    Args:
        samples: `[n]` samples that start at a chunk of their shard and end at one, or at the shard's end.
        shard_rows: samples of the whole shard.
        encode: compresses a chunk as the shard's compression says; None for `none`.
    """
    chunk_rows = min(shard_rows, CHUNK_ROWS)
    columns = samples.columns
    weight = None if samples.weight is None else samples.weight[:0]
    no_others = {name: numbers[:0] for name, numbers in samples.others.items()}
    no_ids = {name: column.part(0, 0) for name, column in samples.ragged.items()}
    return EncodedSamples(
        rows=len(samples),
        positives=np.count_nonzero(samples.label, axis=0),
        like=Samples(samples.dense[:0], samples.sparse[:0], samples.label[:0], no_ids, weight, no_others),
        chunks={
            name: [
                _encode(values[first : first + chunk_rows], chunk_rows, name in SHUFFLED, encode)
                for first in (range(0, len(values), chunk_rows) if values.size else ())
            ]
            for name, values in columns.items()
        },
        ragged=samples.ragged,
    )


def write_encoded_shard(
    path: Path, rows: int, blocks: Iterable[EncodedSamples], compression: str, encode: Encoder | None = None
) -> ShardInfo:
    """Write one shard, whole or not at all; the same blocks give the same bytes.

    Args:
        path: file to write.
        rows: number of samples of all blocks together, 1 or more.
        blocks: encoded samples in order.
        compression: what they were encoded with, one of `COMPRESSIONS`.
        encode: the encoder of that compression, for the ids of ragged features; None for `none`.

    Returns:
        The entry for the manifest.

    Raises:
        ValueError: the blocks have another number of samples.
        OSError: the system refuses to write.
    """
    positives: Any = 0
    with atomic_write(path) as partial:
        with create_hdf5(partial) as file:
            first, chunk_rows = 0, min(rows, CHUNK_ROWS)
            for block in blocks:
                if first == 0:
                    ragged = create_datasets(file, rows, block.like, compression, put_chunk=_direct(encode))
                    datasets = {name: file[name] for name in block.chunks}  # finding one takes as long as filling it
                for name, chunks in block.chunks.items():
                    for number, chunk in enumerate(chunks):
                        _put(datasets[name], first + number * chunk_rows, chunk)
                ragged.append(block.ragged)
                positives += block.positives
                first += block.rows
            if first != rows:
                raise ValueError(f"{path.name} got {first} rows instead of {rows}")
            values = ragged.finish()
        return shard_info(path.name, partial, rows, positives, values)


def _put(dataset: h5py.Dataset, first: int, chunk: EncodedChunk) -> None:
    """Store the chunk that begins with a row."""
    rest = (0,) * (dataset.ndim - 1)
    dataset.id.write_direct_chunk((first, *rest), chunk.data, filter_mask=chunk.filter_mask)


def _direct(encode: Encoder | None) -> PutChunk:
    """A `PutChunk` that stores chunks of ragged features as the encoder gives them."""

    def put(dataset: h5py.Dataset, first: int, values: NDArray[Any]) -> None:
        name = dataset.name.rpartition("/")[2]
        _put(dataset, first, _encode(values, dataset.chunks[0], name in SHUFFLED, encode))

    return put


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
