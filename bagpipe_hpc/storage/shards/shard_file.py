"""Opens a shard, and checks that it holds the datasets that its manifest promises.

HDF5 can point a name at another file, promise samples that were never written, or cut a dataset into chunks far larger
than itself, each of which is read as a whole.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.entries import FeatureInfo, ShardInfo
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, ShardManifest
from bagpipe_hpc.storage.shards.ragged_datasets import RAGGED

_MOST_CHUNK_BYTES = 64 << 20
"""Largest chunk of a ragged feature, whose chunks may be larger than its data; a preparation writes 128 KiB at most."""


@dataclass(frozen=True)
class NamedShard:
    """A shard's file and entry, and the errors that name it.

    Attributes:
        path: of the file.
        info: what the manifest says of it.
    """

    path: Path
    info: ShardInfo

    def unfit(self, problem: str) -> DataError:
        """The error for samples that cannot be those of a preparation."""
        cure = f"the shard is damaged or is not the one of the manifest: {PREPARE_AGAIN}"
        return DataError(f"{self.path}: {problem}; {cure}")

    def outside_table(self, feature: FeatureInfo, table_rows: int, row: int, found: int) -> DataError:
        """The error for an id that a table does not have, in a row of the shard."""
        place = f"feature {feature.name}, sample {row} of the file"
        return self.unfit(f"an id of table {feature.table} is {found}, outside 0 .. {table_rows - 1} ({place})")


@dataclass(frozen=True)
class OpenShard(NamedShard):
    """A shard that was opened and checked.

    Attributes:
        file: the file.
    """

    file: h5py.File

    def read(self, dataset: str, first: int, last: int) -> NDArray[Any]:
        """Values `first` up to `last` of a dataset, `[last - first, ...]` of its type.

        Raises:
            DataError: they cannot be read.
        """
        with errors_name(self.path):
            values: NDArray[Any] = self.file[dataset][first:last]
        return values


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

    Raises:
        DataError: one is missing, differs, or is not stored in the file.
    """
    for name, (shape, dtype) in _expected(manifest, shard).items():
        with errors_name(path):
            dataset = file[name] if is_own(file, name) else None
            kind = dataset.dtype if isinstance(dataset, h5py.Dataset) else None  # raises where NumPy lacks the type
        if not isinstance(dataset, h5py.Dataset):
            raise DataError(f"{path}: it has no dataset {name}; {PREPARE_AGAIN}")
        if dataset.shape != shape or kind != np.dtype(dtype):
            found = list(dataset.shape or ())  # an empty dataspace has no shape
            raise DataError(
                f"{path}: {name} is {kind} {found} instead of {dtype} {list(shape)} as the manifest says; "
                f"the two do not belong together: {PREPARE_AGAIN}"
            )
        with errors_name(path):
            in_full = is_stored(dataset)
        if not in_full:
            raise DataError(f"{path}: {name} is not stored in full inside this file; {PREPARE_AGAIN}")
        if name.startswith(f"{RAGGED}/") and (chunk := _chunk_bytes(dataset)) > _MOST_CHUNK_BYTES:
            raise DataError(f"{path}: a chunk of {name} has {chunk} bytes; use {_MOST_CHUNK_BYTES} at most")


def _expected(manifest: ShardManifest, shard: ShardInfo) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of each dataset that a shard must have."""
    plain, labels = len(manifest.features) - len(manifest.ragged_features), len(manifest.labels)
    expected: dict[str, tuple[tuple[int, ...], str]] = {"dense": ((shard.rows, manifest.dense_features), "float32")}
    if plain:
        expected["sparse"] = ((shard.rows, plain), manifest.sparse_dtype)
    expected["label"] = ((shard.rows, labels) if labels > 1 else (shard.rows,), "uint8")
    if manifest.weighted_samples:
        expected["weight"] = ((shard.rows,), "float32")
    expected |= dict.fromkeys(manifest.others, ((shard.rows,), "int64"))
    for feature, values in zip(manifest.ragged_features, shard.values, strict=True):
        group = f"{RAGGED}/{feature.name}"
        expected[f"{group}/offsets"] = ((shard.rows + 1,), "int64")
        expected[f"{group}/values"] = ((values,), manifest.sparse_dtype)
        if feature.weighted:
            expected[f"{group}/weights"] = ((values,), "float32")
    return expected


def is_own(file: h5py.File, name: str) -> bool:
    """Whether each part of a path is stored in this file itself."""
    parts = name.split("/")
    return all(
        isinstance(file.get("/".join(parts[:count]), getlink=True), h5py.HardLink) for count in range(1, len(parts) + 1)
    )


def own_list(file: h5py.File, name: str) -> h5py.Dataset | None:
    """A one-dimensional dataset that the file itself holds in full, so that it is no larger than the file; or None."""
    dataset = file[name] if is_own(file, name) else None
    is_list = isinstance(dataset, h5py.Dataset) and dataset.ndim == 1 and is_stored(dataset)
    return dataset if is_list else None


def is_stored(dataset: h5py.Dataset) -> bool:
    """Whether all samples of a dataset were written to its own file."""
    if dataset.is_virtual or dataset.external:
        return False
    if dataset.chunks is None:
        stored, promised = dataset.id.get_storage_size(), dataset.size * dataset.dtype.itemsize
        # Texts of variable length are stored as references, which are larger than the pointers that `itemsize` counts.
        return bool(stored >= promised if dataset.dtype.hasobject else stored == promised)
    pieces = (-(-size // piece) for size, piece in zip(dataset.shape, dataset.chunks, strict=True))
    return bool(dataset.id.get_num_chunks() == math.prod(pieces))


def _chunk_bytes(dataset: h5py.Dataset) -> int:
    chunk: tuple[int, ...] = dataset.chunks or ()
    return math.prod(chunk) * int(dataset.dtype.itemsize)


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Turn what HDF5 and the system say about a file that cannot be read into an error that names it.

    Raises:
        DataError: the body could not read it; put nothing else inside.
    """
    try:
        yield
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); it is damaged, or out of reach: copy it here again, or {PREPARE_AGAIN}"
        ) from error
