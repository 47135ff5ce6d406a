"""Samples in HDF5 shards: the writer, and a reader of row ranges that span shards.

A shard holds `dense` float32 `[n, dense features]`, `sparse` int32 or int64 `[n, F]` and `label` uint8 `[n]`.

Shapes: `n` rows of a range or shard, `F` tables. The ids in `sparse` are local to their table.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, ShardInfo, ShardManifest

CHUNK_ROWS = 8192
"""Rows of an HDF5 chunk, which is read as a whole: the default of `data.block_rows`."""
COMPRESSIONS = ("lzf", "gzip", "none")
GZIP_LEVEL = 1
DATASETS = ("dense", "sparse", "label")
SHUFFLED = ("sparse",)
"""Datasets whose bytes are shuffled before they are compressed: that puts the high bytes of ids, mostly zeros, side by
side. Dense features, logarithms of small counts, are few distinct values that compress better whole."""
OPEN_SHARDS = 4
"""Most files that a reader keeps open. Blocks are read in random order, so a few are used again soon."""

Samples = tuple[NDArray[np.float32], NDArray[np.int32] | NDArray[np.int64], NDArray[np.uint8]]
"""Dense features `[n, dense features]`, ids `[n, F]` and labels `[n]` of the same rows."""


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
    """
    positives = 0
    with atomic_write(path) as partial:
        with create_hdf5(partial) as file:
            first = 0
            for dense, sparse, label in sample_blocks:
                if "label" not in file:
                    create_datasets(file, rows, (dense, sparse, label), compression, chunk_checksums)
                last = first + len(label)
                file["dense"][first:last] = dense
                file["sparse"][first:last] = sparse
                file["label"][first:last] = label
                positives += int(np.count_nonzero(label))
                first = last
            if first != rows:
                raise ValueError(f"{path.name} got {first} rows instead of {rows}")
        return ShardInfo(path.name, rows, positives, partial.stat().st_size, file_sha256(partial))


def create_datasets(file: h5py.File, rows: int, like: Samples, compression: str, chunk_checksums: bool = False) -> None:
    """Create the datasets of a shard of `rows` rows with the types and columns of `like`, which may have no rows."""
    for name, values in zip(DATASETS, like, strict=True):
        shape, chunks = (rows, *values.shape[1:]), (min(rows, CHUNK_ROWS), *values.shape[1:])
        if 0 in shape:  # no dense features: HDF5 cuts nothing into chunks
            file.create_dataset(name, shape, values.dtype, track_times=False)
            continue
        options = _dataset_options(name, compression, chunk_checksums)
        file.create_dataset(name, shape, values.dtype, chunks=chunks, **options)


def _dataset_options(dataset: str, compression: str, chunk_checksums: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"fletcher32": chunk_checksums, "track_times": False}
    if compression != "none":
        options |= {"compression": compression, "shuffle": dataset in SHUFFLED}
    if compression == "gzip":
        options["compression_opts"] = GZIP_LEVEL
    return options


class ClickShards:
    """Reads ranges of samples of one split; a context manager that closes its files.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        split: `train` or `test`.

    Attributes:
        rows: number of samples of the split.
    """

    def __init__(self, directory: Path, manifest: ShardManifest, split: str) -> None:
        self._directory = directory
        self._manifest = manifest
        self._shards = manifest.shards(split)
        self._bounds = np.cumsum([0] + [shard.rows for shard in self._shards])
        self._table_rows = np.array(manifest.table_rows, dtype=np.int64)
        self._open: OrderedDict[int, h5py.File] = OrderedDict()
        self.rows = manifest.rows(split)

    def __enter__(self) -> Self:
        """Return the reader itself; files are opened when they are needed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the open files."""
        self.close()

    def close(self) -> None:
        """Close the open files; a later read opens them again."""
        while self._open:
            self._open.popitem()[1].close()

    def read_sparse(self, first: int, last: int) -> NDArray[np.int64]:
        """Ids of rows `first` up to `last`, int64 `[last - first, F]`, each local to its table.

        Raises:
            DataError: a shard is missing or damaged, or an id is outside its table.
        """
        ids = np.empty((self._checked_length(first, last), len(self._table_rows)), dtype=np.int64)
        for shard, at, part in self._parts("sparse", first, last):
            if len(part) and (part.min() < 0 or (part.max(axis=0) >= self._table_rows).any()):
                raise self._outside_table(shard, part)
            ids[at : at + len(part)] = part
        return ids

    def read_dense(self, first: int, last: int) -> NDArray[np.float32]:
        """Dense features of rows `first` up to `last`, float32 `[last - first, dense features]`.

        Raises:
            DataError: a shard is missing or damaged, or a feature is no finite number.
        """
        dense = np.empty((self._checked_length(first, last), self._manifest.dense_features), dtype=np.float32)
        for shard, at, part in self._parts("dense", first, last):
            if not np.isfinite(part).all():
                raise self._unfit(shard, f"a dense feature is {part[~np.isfinite(part)][0]}, no finite number")
            dense[at : at + len(part)] = part
        return dense

    def read_labels(self, first: int, last: int) -> NDArray[np.float32]:
        """Labels of rows `first` up to `last`, float32 `[last - first]`, each 0 or 1.

        Raises:
            DataError: a shard is missing or damaged, or a label is neither 0 nor 1.
        """
        labels = np.empty(self._checked_length(first, last), dtype=np.float32)
        for shard, at, part in self._parts("label", first, last):
            if len(part) and part.max() > 1:
                raise self._unfit(shard, f"a label is {part.max()} instead of 0 or 1")
            labels[at : at + len(part)] = part
        return labels

    def _checked_length(self, first: int, last: int) -> int:
        if not 0 <= first <= last <= self.rows:
            raise IndexError(f"rows {first} up to {last} are not within the {self.rows} rows of this split")
        return last - first

    def _parts(self, dataset: str, first: int, last: int) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Pieces of a range, one a shard: the shard's number, the piece's place in the range, its values."""
        if first == last:
            return
        first_shard, last_shard = np.searchsorted(self._bounds, (first, last - 1), side="right") - 1
        for shard in range(int(first_shard), int(last_shard) + 1):
            start = int(self._bounds[shard])
            begin, end = max(first, start), min(last, int(self._bounds[shard + 1]))
            file = self._file(shard)
            with errors_name(self._directory / self._shards[shard].file):
                yield shard, begin - first, file[dataset][begin - start : end - start]

    def _file(self, shard: int) -> h5py.File:
        """The open file of a shard; the one that was used longest ago is closed to make room."""
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        while len(self._open) >= OPEN_SHARDS:
            self._open.popitem(last=False)[1].close()
        path = self._directory / self._shards[shard].file
        file = open_shard(path)
        try:
            check_datasets(path, file, self._manifest, self._shards[shard])
        except DataError:
            file.close()
            raise
        self._open[shard] = file
        return file

    def _outside_table(self, shard: int, ids: NDArray[Any]) -> DataError:
        row, table = np.argwhere((ids < 0) | (ids >= self._table_rows))[0]
        info = self._manifest.tables[table]
        return self._unfit(shard, f"an id of table {info.name} is {ids[row, table]}, outside 0 .. {info.rows - 1}")

    def _unfit(self, shard: int, problem: str) -> DataError:
        path = self._directory / self._shards[shard].file
        return DataError(f"{path}: {problem}; the shard is damaged or is not the one of the manifest: {PREPARE_AGAIN}")


def open_shard(path: Path) -> h5py.File:
    """Open a shard for reading.

    Raises:
        DataError: it is missing or is no HDF5 file.
    """
    with errors_name(path):
        if not path.is_file():
            raise DataError(f"{path}: the shard is missing; copy it here again, or {PREPARE_AGAIN}")
        # Finished shards never change, and parallel file systems often have no working locks.
        return h5py.File(path, "r", locking=False)


def check_datasets(path: Path, file: h5py.File, manifest: ShardManifest, shard: ShardInfo) -> None:
    """Check the shapes and types of a shard's datasets against the manifest, and that the file itself holds them.

    HDF5 can point a name at another file or promise samples that were never written.

    Raises:
        DataError: one is missing, differs, or is not stored in the file.
    """
    expected = {
        "dense": ((shard.rows, manifest.dense_features), "float32"),
        "sparse": ((shard.rows, len(manifest.tables)), manifest.sparse_dtype),
        "label": ((shard.rows,), "uint8"),
    }
    for name, (shape, dtype) in expected.items():
        with errors_name(path):
            is_own = isinstance(file.get(name, getlink=True), h5py.HardLink)
            dataset = file[name] if is_own else None
        if not isinstance(dataset, h5py.Dataset):
            raise DataError(f"{path}: it has no dataset {name}; {PREPARE_AGAIN}")
        if dataset.shape != shape or dataset.dtype != np.dtype(dtype):
            found = list(dataset.shape or ())  # an empty dataspace has no shape
            raise DataError(
                f"{path}: {name} is {dataset.dtype} {found} instead of {dtype} {list(shape)} as the manifest says; "
                f"the two do not belong together: {PREPARE_AGAIN}"
            )
        with errors_name(path):
            is_stored = _is_stored(dataset)
        if not is_stored:
            raise DataError(f"{path}: {name} is not stored in full inside this file; {PREPARE_AGAIN}")


def _is_stored(dataset: h5py.Dataset) -> bool:
    """Whether all samples of a dataset, which has some, were written to its own file."""
    if dataset.is_virtual or dataset.external:
        return False
    if dataset.chunks is None:
        return bool(dataset.id.get_storage_size() == dataset.size * dataset.dtype.itemsize)
    pieces = (-(-size // piece) for size, piece in zip(dataset.shape, dataset.chunks, strict=True))
    return bool(dataset.id.get_num_chunks() == math.prod(pieces))


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Turn what HDF5 and the system say about a file that cannot be read into an error that names it."""
    try:
        yield
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); it is damaged, or out of reach: copy it here again, or {PREPARE_AGAIN}"
        ) from error
