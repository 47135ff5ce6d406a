"""Writes a shard through HDF5's own filters, and creates its datasets.

Shapes: `n` samples, `N` dense features, `F` features with one id a sample, `K` labels.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.entries import ShardInfo
from bagpipe_hpc.storage.shards.ragged_datasets import PutChunk, RaggedDatasets, put_through_hdf5
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, Samples

COMPRESSIONS = ("lzf", "gzip", "none")
GZIP_LEVEL = 1
SHUFFLED = ("sparse", "offsets", "values")
"""Datasets whose bytes are shuffled before they are compressed: that puts the high bytes of ids, mostly zeros, side by
side. Dense features, logarithms of small counts, are few distinct values that compress better whole."""


def write_shard(
    path: Path, rows: int, sample_blocks: Iterable[Samples], compression: str = "lzf", chunk_checksums: bool = False
) -> ShardInfo:
    """Write one shard, whole or not at all.

    The same blocks give the same bytes with `gzip` and `none`, but only the same samples with `lzf`: h5py's compressor
    starts from memory that it does not clear (`INIT_HTAB` in lzfP.h), so that it may find other matches.

    Args:
        path: file to write.
        rows: number of samples of all blocks together, 1 or more.
        sample_blocks: samples in order; blocks of a multiple of `CHUNK_ROWS` rows are written fastest.
        compression: one of `COMPRESSIONS`.
        chunk_checksums: store a Fletcher-32 checksum with every chunk, which HDF5 checks on each read.

    Returns:
        The entry for the manifest.

    Raises:
        ValueError: the blocks have another number of samples.
        OSError: the system refuses to write.
    """
    positives: Any = 0
    values: tuple[int, ...] = ()
    with atomic_write(path) as written:
        with create_hdf5(written) as file:
            first = 0
            for samples in sample_blocks:
                if "label" not in file:
                    ragged = create_datasets(file, rows, samples, compression, chunk_checksums)
                last = first + len(samples)
                for name, column in samples.columns.items():
                    file[name][first:last] = column
                ragged.append(samples.ragged)
                positives += np.count_nonzero(samples.label, axis=0)
                first = last
            if first != rows:
                raise ValueError(f"{path.name} got {first} rows instead of {rows}")
            values = ragged.finish()
        return shard_info(path.name, written, rows, positives, values)


def shard_info(name: str, written: Path, rows: int, positives: Any, values: tuple[int, ...]) -> ShardInfo:
    """The entry for the manifest.

    Args:
        name: the final name of the file.
        written: where the file is now.
        rows: number of samples.
        positives: samples with 1 for each label, integers `[K]`, or a number for one label.
        values: ids of each ragged feature.
    """
    counts = np.atleast_1d(positives).tolist()
    size, sha256 = written.stat().st_size, file_sha256(written)
    return ShardInfo(name, rows, counts[0], size, sha256, tuple(counts[1:]), values)


def create_datasets(
    file: h5py.File,
    rows: int,
    like: Samples,
    compression: str,
    chunk_checksums: bool = False,
    put_chunk: PutChunk = put_through_hdf5,
) -> RaggedDatasets:
    """Create the datasets of a shard of `rows` rows with the types and columns of `like`, which may have no rows.

    Args:
        file: the shard.
        rows: number of its samples.
        like: samples of the types and columns to store.
        compression: one of `COMPRESSIONS`.
        chunk_checksums: store a checksum with every chunk.
        put_chunk: how the chunks of ragged features are stored.

    Returns:
        The datasets of its ragged features, to be filled.
    """
    for name, values in like.columns.items():
        shape, chunks = (rows, *values.shape[1:]), (min(rows, CHUNK_ROWS), *values.shape[1:])
        if 0 in shape:  # no dense features: HDF5 cuts nothing into chunks
            file.create_dataset(name, shape, values.dtype, track_times=False)
            continue
        options = _dataset_options(name, compression, chunk_checksums)
        file.create_dataset(name, shape, values.dtype, chunks=chunks, **options)
    options_of = partial(_dataset_options, compression=compression, chunk_checksums=chunk_checksums)
    return RaggedDatasets(file, like.ragged, options_of, put_chunk)


def _dataset_options(dataset: str, compression: str, chunk_checksums: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"fletcher32": chunk_checksums, "track_times": False}
    if compression != "none":
        options |= {"compression": compression, "shuffle": dataset in SHUFFLED}
    if compression == "gzip":
        options["compression_opts"] = GZIP_LEVEL
    return options
