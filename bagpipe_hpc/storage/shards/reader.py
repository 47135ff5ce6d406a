"""Reads ranges of samples that span shards.

Shapes: `n` rows of a range, `F` features, `P` of them with one id a sample, `K` labels, `V` ids of all rows and
features. Ids are local to their tables.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.bags import Bags, Int64s, offsets_of
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, ShardManifest
from bagpipe_hpc.storage.shards.ragged_datasets import RAGGED
from bagpipe_hpc.storage.shards.shard_file import check_datasets, errors_name, open_shard

OPEN_SHARDS = 4
"""Most files that a reader keeps open. Blocks are read in random order, so a few are used again soon."""


class _Part(NamedTuple):
    """The rows `first` up to `last` of a shard, and where they stand in the range that is read."""

    shard: int
    first: int
    last: int
    at: int

    @property
    def to(self) -> int:
        return self.at + self.last - self.first


class ClickShards:
    """Reads ranges of samples of one split; a context manager that closes its files.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        split: `train` or `test`.
        longest: most ids of a sample, for each feature, 0 for any number: of longer bags only the last ids are read,
            the newest of a history. No limits if not given.

    Attributes:
        rows: number of samples of the split.
    """

    def __init__(self, directory: Path, manifest: ShardManifest, split: str, longest: Sequence[int] = ()) -> None:
        if longest and len(longest) != len(manifest.features):
            raise ValueError(f"{len(longest)} limits for {len(manifest.features)} features")
        self._directory = directory
        self._manifest = manifest
        self._shards = manifest.shards(split)
        self._bounds = np.cumsum([0] + [shard.rows for shard in self._shards])
        self._feature_rows = np.array([manifest.table_rows[table] for table in manifest.feature_tables], dtype=np.int64)
        self._longest = tuple(longest) or (0,) * len(manifest.features)
        self._plain = [number for number, feature in enumerate(manifest.features) if not feature.ragged]
        self._ragged = [number for number, feature in enumerate(manifest.features) if feature.ragged]
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
        """Ids of rows `first` up to `last` of the features with one id a sample, int64 `[last - first, P]`.

        Raises:
            DataError: a shard is missing or damaged, or an id is outside its table.
        """
        ids = np.empty((self._checked_length(first, last), len(self._plain)), dtype=np.int64)
        table_rows = self._feature_rows[self._plain]
        for part in self._parts(first, last) if self._plain else ():
            read = self._read(part, "sparse")
            if len(read) and (read.min() < 0 or (read.max(axis=0) >= table_rows).any()):
                row, column = np.argwhere((read < 0) | (read >= table_rows))[0]
                raise self._outside_table(part, self._plain[column], part.first + row, read[row, column])
            ids[part.at : part.to] = read
        return ids

    def read_look_ups(self, first: int, last: int) -> Bags:
        """Ids of rows `first` up to `last`, int64 `[V]`; without offsets where all features have one id a sample.

        Raises:
            DataError: a shard is missing or damaged, bags do not lie one behind the other, or an id is outside its
                table.
        """
        ids = self.read_sparse(first, last)
        if not self._ragged:
            return Bags.one_hot(ids)
        return self._bags(ids, {feature: self._read_ids(feature, first, last) for feature in self._ragged})

    def read_lengths(self, first: int, last: int) -> Int64s:
        """Number of ids of rows `first` up to `last`, int64 `[last - first, F]`.

        Raises:
            DataError: a shard is missing or damaged, or bags do not lie one behind the other.
        """
        lengths = np.ones((self._checked_length(first, last), len(self._longest)), dtype=np.int64)
        for feature in self._ragged:
            for part in self._parts(first, last):
                lengths[part.at : part.to, feature] = self._cut(feature, np.diff(self._read_offsets(part, feature)))
        return lengths

    def read_id_weights(self, first: int, last: int) -> Bags:
        """The weight of each id of `read_look_ups`, float32 `[V]`; 1 where the feature has no weights.

        Raises:
            DataError: a shard is missing or damaged, bags do not lie one behind the other, or a weight is not finite.
        """
        ones = np.ones((self._checked_length(first, last), len(self._plain)), dtype=np.float32)
        if not self._ragged:
            return Bags.one_hot(ones)
        return self._bags(ones, {feature: self._read_weights(feature, first, last) for feature in self._ragged})

    def read_dense(self, first: int, last: int) -> NDArray[np.float32]:
        """Dense features of rows `first` up to `last`, float32 `[last - first, dense features]`.

        Raises:
            DataError: a shard is missing or damaged, or a feature is no finite number.
        """
        dense = np.empty((self._checked_length(first, last), self._manifest.dense_features), dtype=np.float32)
        for part in self._parts(first, last):
            read = self._read(part, "dense")
            if not np.isfinite(read).all():
                raise self._unfit(part, f"a dense feature is {read[~np.isfinite(read)][0]}, no finite number")
            dense[part.at : part.to] = read
        return dense

    def read_labels(self, first: int, last: int) -> NDArray[np.float32]:
        """Labels of rows `first` up to `last`, each 0 or 1: float32 `[last - first]` for one label, else with `K`.

        Raises:
            DataError: a shard is missing or damaged, or a label is neither 0 nor 1.
        """
        rows, names = self._checked_length(first, last), self._manifest.labels
        labels = np.empty((rows, len(names)) if len(names) > 1 else rows, dtype=np.float32)
        for part in self._parts(first, last):
            read = self._read(part, "label")
            if len(read) and read.max() > 1:
                raise self._unfit(part, f"a label is {read.max()} instead of 0 or 1")
            labels[part.at : part.to] = read
        return labels

    def read_sample_weights(self, first: int, last: int) -> NDArray[np.float32]:
        """Weights of rows `first` up to `last`, float32 `[last - first]`, finite, 0 or more; 1 where they have none.

        Raises:
            DataError: a shard is missing or damaged, or a weight is negative or not finite.
        """
        weights = np.ones(self._checked_length(first, last), dtype=np.float32)
        for part in self._parts(first, last) if self._manifest.weighted_samples else ():
            read = self._read(part, "weight")
            bad = np.flatnonzero(~(np.isfinite(read) & (read >= 0)))
            if len(bad):
                problem = f"is {read[bad[0]]} instead of a finite number, 0 or more"
                raise self._unfit(part, f"the weight of sample {part.first + bad[0]} {problem}")
            weights[part.at : part.to] = read
        return weights

    def _bags(self, plain: NDArray[Any], ragged: dict[int, tuple[Int64s, NDArray[Any]]]) -> Bags:
        """All features' values side by side, sample after sample.

        Args:
            plain: values of the features with one id a sample, `[n, P]`.
            ragged: numbers of values `[n]` and values of each other feature.
        """
        lengths = np.ones((len(plain), len(self._longest)), dtype=np.int64)
        for feature, (counts, _) in ragged.items():
            lengths[:, feature] = counts
        offsets = offsets_of(lengths)
        starts = offsets[:-1].reshape(lengths.shape)
        values = np.empty(offsets[-1], dtype=plain.dtype)
        values[starts[:, self._plain]] = plain
        for feature, (counts, of_feature) in ragged.items():
            # A bag moves as one: from behind the feature's earlier bags to behind the sample's earlier features.
            moved = starts[:, feature] - (np.cumsum(counts) - counts)
            values[np.repeat(moved, counts) + np.arange(len(of_feature))] = of_feature
        return Bags(values, len(self._longest), offsets)

    def _read_ids(self, feature: int, first: int, last: int) -> tuple[Int64s, NDArray[np.int64]]:
        """Numbers of ids `[n]` and ids of a ragged feature."""
        rows = self._feature_rows[feature]
        pieces = []
        for part in self._parts(first, last):
            offsets = self._read_offsets(part, feature)
            ids = self._read_values(part, feature, "values", offsets)
            if len(ids) and (ids.min() < 0 or ids.max() >= rows):
                place = np.flatnonzero((ids < 0) | (ids >= rows))[0]
                raise self._outside_table(part, feature, self._row_of(part, offsets, place), ids[place])
            pieces.append(self._newest(feature, np.diff(offsets), ids))
        return _joined(pieces, np.int64)

    def _read_weights(self, feature: int, first: int, last: int) -> tuple[Int64s, NDArray[np.float32]]:
        """Numbers of ids `[n]` and their weights of a ragged feature."""
        info = self._manifest.features[feature]
        pieces = []
        for part in self._parts(first, last):
            offsets = self._read_offsets(part, feature)
            weights = np.ones(offsets[-1] - offsets[0], dtype=np.float32)
            if info.weighted:
                weights = self._read_values(part, feature, "weights", offsets)
                if not np.isfinite(weights).all():
                    place = np.flatnonzero(~np.isfinite(weights))[0]
                    row = self._row_of(part, offsets, place)
                    raise self._unfit(
                        part, f"a weight of feature {info.name} in sample {row} is {weights[place]}, no finite number"
                    )
            pieces.append(self._newest(feature, np.diff(offsets), weights))
        return _joined(pieces, np.float32)

    def _newest(self, feature: int, lengths: Int64s, values: NDArray[Any]) -> tuple[Int64s, NDArray[Any]]:
        """The last values of each bag, as many as the feature's limit; and how many these are."""
        kept = self._cut(feature, lengths)
        if kept is lengths:
            return lengths, values
        from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(values))
        return kept, values[from_end <= self._longest[feature]]

    def _cut(self, feature: int, lengths: Int64s) -> Int64s:
        limit = self._longest[feature]
        return np.minimum(lengths, limit) if limit and lengths.max(initial=0) > limit else lengths

    def _read_offsets(self, part: _Part, feature: int) -> Int64s:
        """Where the bags of a ragged feature begin, and the end of the last, int64 `[rows + 1]`; all in order."""
        info, shard = self._manifest.features[feature], self._shards[part.shard]
        stored = shard.values[self._ragged.index(feature)]
        name = f"{RAGGED}/{info.name}/offsets"
        with errors_name(self._directory / shard.file):
            offsets: Int64s = self._file(part.shard)[name][part.first : part.last + 1]

        def refuse(place: int, problem: str) -> DataError:
            return self._unfit(part, f"{name}: that of sample {part.first + place} is {offsets[place]}, {problem}")

        outside = (offsets < 0) | (offsets > stored)
        if outside.any():
            raise refuse(int(np.argmax(outside)), f"outside the {stored} values")
        lengths = np.diff(offsets)
        if lengths.min(initial=0) < 0:
            place = int(np.argmax(lengths < 0)) + 1
            raise refuse(place, f"less than the {offsets[place - 1]} before it")
        if part.first == 0 and offsets[0] != 0:
            raise refuse(0, "not 0")
        if part.last == shard.rows and offsets[-1] != stored:
            raise refuse(len(offsets) - 1, f"not the number of values, {stored}")
        if lengths.max(initial=0) > info.longest:
            row = int(np.argmax(lengths > info.longest))
            problem = (
                f"feature {info.name} has {lengths[row]} ids in sample {part.first + row}, more than the manifest's"
            )
            raise self._unfit(part, f"{problem} {info.longest}")
        return offsets

    def _read_values(self, part: _Part, feature: int, dataset: str, offsets: Int64s) -> NDArray[Any]:
        return self._read(
            part._replace(first=int(offsets[0]), last=int(offsets[-1])),
            f"{RAGGED}/{self._manifest.features[feature].name}/{dataset}",
        )

    def _row_of(self, part: _Part, offsets: Int64s, place: int) -> int:
        """The shard's sample that has the value at a place behind the first offset."""
        return part.first + int(np.searchsorted(offsets, offsets[0] + place, side="right")) - 1

    def _read(self, part: _Part, dataset: str) -> NDArray[Any]:
        """A part of a dataset."""
        file = self._file(part.shard)
        with errors_name(self._directory / self._shards[part.shard].file):
            read: NDArray[Any] = file[dataset][part.first : part.last]
        return read

    def _checked_length(self, first: int, last: int) -> int:
        if not 0 <= first <= last <= self.rows:
            raise IndexError(f"rows {first} up to {last} are not within the {self.rows} rows of this split")
        return last - first

    def _parts(self, first: int, last: int) -> Iterator[_Part]:
        """Pieces of a range, one a shard."""
        if first == last:
            return
        first_shard, last_shard = np.searchsorted(self._bounds, (first, last - 1), side="right") - 1
        for shard in range(int(first_shard), int(last_shard) + 1):
            start = int(self._bounds[shard])
            begin, end = max(first, start), min(last, int(self._bounds[shard + 1]))
            yield _Part(shard, begin - start, end - start, begin - first)

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

    def _outside_table(self, part: _Part, feature: int, row: int, found: int) -> DataError:
        info = self._manifest.features[feature]
        place = f"feature {info.name}, sample {row} of the file"
        last = self._feature_rows[feature] - 1
        return self._unfit(part, f"an id of table {info.table} is {found}, outside 0 .. {last} ({place})")

    def _unfit(self, part: _Part, problem: str) -> DataError:
        path = self._directory / self._shards[part.shard].file
        return DataError(f"{path}: {problem}; the shard is damaged or is not the one of the manifest: {PREPARE_AGAIN}")


def _joined(pieces: list[tuple[Int64s, NDArray[Any]]], dtype: type) -> tuple[Int64s, NDArray[Any]]:
    """The bags of all shards of a range."""
    if not pieces:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=dtype)
    lengths, values = zip(*pieces, strict=True)
    return np.concatenate(lengths), np.concatenate(values)
