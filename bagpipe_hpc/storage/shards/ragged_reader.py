"""Reads ragged features of a shard, whose offsets may be damaged: each is checked before anything is read by it.

Shapes: `n` rows of a range, `V` ids of these rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.storage.shards.entries import FeatureInfo
from bagpipe_hpc.storage.shards.ragged_datasets import RAGGED
from bagpipe_hpc.storage.shards.raw_chunks import ReadShard

Column = tuple[Int64s, NDArray[Any]]
"""How many values each row has, `[n]`, and the values of all rows, `[V]`."""


@dataclass(frozen=True)
class RaggedReader:
    """Reads one ragged feature.

    Attributes:
        info: the feature.
        number: its place among the ragged features.
        table_rows: rows of its table.
        longest: most ids that are given of a row, the last ones of a longer one; 0 for no limit.
    """

    info: FeatureInfo
    number: int
    table_rows: int
    longest: int

    def lengths(self, shard: ReadShard, first: int, last: int) -> Int64s:
        """Number of ids of each of the shard's rows `first` up to `last`, int64 `[n]`.

        Raises:
            DataError: offsets do not ascend from 0 to the number of values, or a row has more ids than the manifest
                says.
        """
        return self._cut(np.diff(self._offsets(shard, first, last)))

    def ids(self, shard: ReadShard, first: int, last: int) -> Column:
        """Ids of the shard's rows `first` up to `last`, int32 or int64.

        Raises:
            DataError: as for `lengths`, or an id is outside the table.
        """
        offsets = self._offsets(shard, first, last)
        ids = shard.read(f"{RAGGED}/{self.info.name}/values", int(offsets[0]), int(offsets[-1]))
        if len(ids) and (ids.min() < 0 or ids.max() >= self.table_rows):
            place = int(np.argmax((ids < 0) | (ids >= self.table_rows)))
            raise shard.outside_table(self.info, self.table_rows, first + _row_of(offsets, place), ids[place])
        return self._newest(np.diff(offsets), ids)

    def weights(self, shard: ReadShard, first: int, last: int) -> Column:
        """Weights of the same ids, float32; 1 where the feature has none.

        Raises:
            DataError: as for `lengths`, or a weight is not finite.
        """
        offsets = self._offsets(shard, first, last)
        if not self.info.weighted:
            return self._newest(np.diff(offsets), np.ones(offsets[-1] - offsets[0], dtype=np.float32))
        weights = shard.read(f"{RAGGED}/{self.info.name}/weights", int(offsets[0]), int(offsets[-1]))
        if not np.isfinite(weights).all():
            place = int(np.argmin(np.isfinite(weights)))
            row = first + _row_of(offsets, place)
            problem = f"a weight of feature {self.info.name} in sample {row} is {weights[place]}, no finite number"
            raise shard.unfit(problem)
        return self._newest(np.diff(offsets), weights)

    def _offsets(self, shard: ReadShard, first: int, last: int) -> Int64s:
        """Where the bags of rows begin, and the end of the last, int64 `[n + 1]`; n is above 0."""
        name, stored = f"{RAGGED}/{self.info.name}/offsets", shard.info.values[self.number]
        offsets: Int64s = shard.read(name, first, last + 1)
        lengths = np.diff(offsets)  # may wrap around for damaged offsets: used only once these are known to be in range

        def require(are_good: NDArray[np.bool_], place: int, problem: str) -> None:
            if not are_good.all():
                at = int(np.argmin(are_good)) + place
                raise shard.unfit(f"{name}: that of sample {first + at} is {offsets[at]}, {problem}")

        require((offsets >= 0) & (offsets <= stored), 0, f"outside the {stored} values")
        require(lengths >= 0, 1, "less than the one before it")
        require(offsets[:1] == 0 if first == 0 else offsets[:0] == 0, 0, "not 0")
        is_end = last == shard.info.rows
        require(offsets[-1:] == stored if is_end else offsets[:0] == 0, last - first, f"not the {stored} of all values")
        if lengths.max() > self.info.longest:
            row = int(np.argmax(lengths > self.info.longest))
            raise shard.unfit(
                f"feature {self.info.name} has {lengths[row]} ids in sample {first + row}, more than the manifest's "
                f"{self.info.longest}"
            )
        return offsets

    def _newest(self, lengths: Int64s, values: NDArray[Any]) -> Column:
        """The last values of each row, as many as are given."""
        kept = self._cut(lengths)
        if kept is lengths:
            return lengths, values
        from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(values))
        return kept, values[from_end <= self.longest]

    def _cut(self, lengths: Int64s) -> Int64s:
        return np.minimum(lengths, self.longest) if self.longest and lengths.max(initial=0) > self.longest else lengths


def _row_of(offsets: Int64s, place: int) -> int:
    """The row of a range that has the value at a place of the range."""
    return int(np.searchsorted(offsets, offsets[0] + place, side="right")) - 1
