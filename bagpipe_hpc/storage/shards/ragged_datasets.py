"""Writes the datasets of ragged features, whose sizes are known only at the end, in whole chunks.

A feature is a group `ragged/NAME` with `offsets` int64 `[n + 1]`, `values` int32 or int64 `[V]`, and `weights` float32
`[V]` where its ids have weights: sample i has the values `offsets[i]` up to `offsets[i + 1]`.

Shapes: `n` samples, `V` ids of all samples.
"""

from collections.abc import Callable, Mapping
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, CHUNK_VALUES, RaggedColumn

RAGGED = "ragged"
"""Group of the ragged features."""

PutChunk = Callable[[h5py.Dataset, int, NDArray[Any]], None]
"""Stores the values `[m]` that begin at a place of a dataset: a whole chunk, or what is left of the last one."""


def put_through_hdf5(dataset: h5py.Dataset, first: int, values: NDArray[Any]) -> None:
    """Let HDF5 compress the values: a `PutChunk`."""
    dataset[first : first + len(values)] = values


class RaggedDatasets:
    """The datasets of a shard's ragged features, which grow at their ends.

    Args:
        file: the shard.
        like: columns of the types to store, which may have no samples.
        options: gives h5py's options for a dataset by its name in the group.
        put_chunk: how chunks are stored.
    """

    def __init__(
        self,
        file: h5py.File,
        like: Mapping[str, RaggedColumn],
        options: Callable[[str], dict[str, Any]],
        put_chunk: PutChunk = put_through_hdf5,
    ) -> None:
        self._columns: dict[str, dict[str, _Growing]] = {}
        self._ends = dict.fromkeys(like, 0)
        for feature, column in like.items():
            group = file.create_group(f"{RAGGED}/{feature}")
            chunks = {"offsets": CHUNK_ROWS, "values": CHUNK_VALUES, "weights": CHUNK_VALUES}
            types: dict[str, np.dtype[Any]] = {"offsets": np.dtype(np.int64), "values": column.values.dtype}
            if column.weights is not None:
                types["weights"] = np.dtype(np.float32)
            self._columns[feature] = {
                name: _Growing(
                    group.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(chunks[name],), **options(name)),
                    put_chunk,
                )
                for name, dtype in types.items()
            }
            self._columns[feature]["offsets"].append(np.zeros(1, dtype=np.int64))

    def append(self, columns: Mapping[str, RaggedColumn]) -> None:
        """Add the samples of a block."""
        for feature, column in columns.items():
            datasets = self._columns[feature]
            datasets["offsets"].append(self._ends[feature] + np.cumsum(column.lengths, dtype=np.int64))
            datasets["values"].append(column.values)
            if column.weights is not None:
                datasets["weights"].append(column.weights)
            self._ends[feature] += len(column.values)

    def finish(self) -> tuple[int, ...]:
        """Store what is left; returns the number of ids of each feature."""
        for datasets in self._columns.values():
            for dataset in datasets.values():
                dataset.finish()
        return tuple(self._ends.values())


class _Growing:
    """A dataset of one dimension that values are added to; all but the last chunk are stored whole."""

    def __init__(self, dataset: h5py.Dataset, put_chunk: PutChunk) -> None:
        self._dataset = dataset
        self._put = put_chunk
        self._chunk = dataset.chunks[0]
        self._waiting: list[NDArray[Any]] = []
        self._values = 0
        self._stored = 0

    def append(self, values: NDArray[Any]) -> None:
        self._waiting.append(values)
        self._values += len(values)
        if self._values - self._stored >= self._chunk:
            self._store(whole_chunks_only=True)

    def finish(self) -> None:
        self._store(whole_chunks_only=False)

    def _store(self, whole_chunks_only: bool) -> None:
        waiting = np.concatenate(self._waiting) if self._waiting else np.empty(0, self._dataset.dtype)
        size = len(waiting) - len(waiting) % self._chunk if whole_chunks_only else len(waiting)
        self._dataset.resize((self._stored + size,))
        for first in range(0, size, self._chunk):
            self._put(self._dataset, self._stored + first, waiting[first : min(first + self._chunk, size)])
        self._stored += size
        self._waiting = [waiting[size:].copy()]
