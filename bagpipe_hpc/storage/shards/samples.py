"""Samples as they are written to a shard, and how a shard's datasets are cut into chunks.

Shapes: `n` samples, `N` dense features, `F` features with one id a sample, `K` labels, `V` ids of all samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

CHUNK_ROWS = 8192
"""Rows of an HDF5 chunk, which is read as a whole: the default of `data.block_rows`."""
CHUNK_VALUES = 1 << 14
"""Ids of ragged features in an HDF5 chunk, 64 KiB. A chunk is read as a whole, so that at each end of a block up to
one chunk too much is read."""

Ids = NDArray[np.int32] | NDArray[np.int64]


@dataclass(frozen=True)
class RaggedColumn:
    """The ids of one ragged feature.

    Attributes:
        lengths: number of ids of each sample, int64 `[n]`.
        values: the ids, one sample after the other, local to their table, int32 or int64 `[V]`.
        weights: the weight of each id, float32 `[V]`, finite; None where the feature is not weighted.
    """

    lengths: NDArray[np.int64]
    values: Ids
    weights: NDArray[np.float32] | None = None

    def part(self, first: int, last: int) -> "RaggedColumn":
        """The column of samples `first` up to `last`; values and weights are views."""
        begin, end = (int(self.lengths[:number].sum()) for number in (first, last))
        weights = None if self.weights is None else self.weights[begin:end]
        return RaggedColumn(self.lengths[first:last], self.values[begin:end], weights)


@dataclass(frozen=True)
class Samples:
    """What is known of n samples.

    Attributes:
        dense: dense features, float32 `[n, N]`.
        sparse: ids of the features with one id a sample, local to their tables, int32 or int64 `[n, F]`.
        label: 0 or 1, uint8 `[n]` for one label, `[n, K]` for several.
        ragged: the other features by name, in the order of the manifest.
        weight: weights of the samples, float32 `[n]`, finite, 0 or more; None where they have none.
        others: further columns, int64 `[n]` each: `timestamp`, `group`. Training does not read them.
    """

    dense: NDArray[np.float32]
    sparse: Ids
    label: NDArray[np.uint8]
    ragged: Mapping[str, RaggedColumn] = field(default_factory=dict)
    weight: NDArray[np.float32] | None = None
    others: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.label)

    @property
    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The arrays with a row for each sample, by the name of their dataset, in the order in which it is created."""
        columns: dict[str, NDArray[np.generic]] = {"dense": self.dense, "sparse": self.sparse, "label": self.label}
        if not self.sparse.shape[1]:
            del columns["sparse"]
        if self.weight is not None:
            columns["weight"] = self.weight
        return {**columns, **self.others}
