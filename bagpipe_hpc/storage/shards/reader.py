"""Reads ranges of samples that span shards.

Shapes: `n` rows of a range, `F` features, `P` of them with one id a sample, `K` labels, `V` ids of all rows and
features. Ids are local to their tables.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.bags import Bags, Int64s, offsets_of
from bagpipe_hpc.storage.shards.entries import ShardInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.ragged_reader import Column, RaggedReader
from bagpipe_hpc.storage.shards.raw_chunks import ChunkDecoder, KeptChunks, ReadShard
from bagpipe_hpc.storage.shards.shard_file import OpenShard, check_datasets, open_shard

OPEN_SHARDS = 4
"""Most files that a reader keeps open. Blocks are read in random order, so a few are used again soon."""


ReadColumn = Callable[[RaggedReader, ReadShard, int, int], Column]


class _Part(NamedTuple):
    """The rows `first` up to `last` of a shard, and where they stand in the range that is read."""

    first: int
    last: int
    at: int

    @property
    def to(self) -> int:
        return self.at + self.last - self.first


class ClickShards:
    """Reads ranges of samples of one split; a context manager that closes its files. Several threads may read.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        split: `train` or `test`.
        longest: most ids of a sample, for each feature, 0 for any number: of longer bags only the last ids are read,
            the newest of a history. No limits if not given.
        decoder: decodes chunks that are read without HDF5; if not given, HDF5 reads everything.

    Attributes:
        rows: number of samples of the split.

    Raises:
        ValueError: there are not as many limits as features.
        IndexError: by every method that reads: the samples are not within the split.
    """

    def __init__(
        self,
        directory: Path,
        manifest: ShardManifest,
        split: str,
        longest: Sequence[int] = (),
        decoder: ChunkDecoder | None = None,
    ) -> None:
        if longest and len(longest) != len(manifest.features):
            raise ValueError(f"{len(longest)} limits for {len(manifest.features)} features")
        self._manifest = manifest
        self._shards = manifest.shards(split)
        self._bounds = np.cumsum([0] + [shard.rows for shard in self._shards])
        self._table_rows = np.array(manifest.table_rows, dtype=np.int64)[list(manifest.feature_tables)]
        self._plain = [number for number, feature in enumerate(manifest.features) if not feature.ragged]
        self._ragged: dict[int, RaggedReader] = {}
        for number, feature in enumerate(manifest.features):
            if feature.ragged:
                rows, limit = int(self._table_rows[number]), longest[number] if longest else 0
                self._ragged[number] = RaggedReader(feature, len(self._ragged), rows, limit)
        self._open: OrderedDict[Path, OpenShard] = OrderedDict()
        lock, kept = threading.RLock(), KeptChunks()
        self._readers = [
            ReadShard(
                path := directory / info.file,
                info,
                partial(_opened, self._open, path, info, manifest),
                lock,
                kept,
                decoder,
            )
            for info in self._shards
        ]
        self.rows = manifest.rows(split)

    @property
    def has_ragged_features(self) -> bool:
        """Whether a feature may have any number of ids a sample."""
        return bool(self._ragged)

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
            self._open.popitem()[1].file.close()

    def read_sparse(self, first: int, last: int) -> NDArray[np.int64]:
        """Ids of rows `first` up to `last` of the features with one id a sample, int64 `[last - first, P]`.

        Raises:
            DataError: a shard is missing or damaged, or an id is outside its table.
        """
        ids = np.empty((self._checked_length(first, last), len(self._plain)), dtype=np.int64)
        table_rows = self._table_rows[self._plain]
        for part, shard in self._parts(first, last) if self._plain else ():
            read = shard.read("sparse", part.first, part.last)
            if len(read) and (read.min() < 0 or (read.max(axis=0) >= table_rows).any()):
                row, column = np.argwhere((read < 0) | (read >= table_rows))[0]
                feature = self._manifest.features[self._plain[column]]
                raise shard.outside_table(feature, table_rows[column], part.first + row, read[row, column])
            ids[part.at : part.to] = read
        return ids

    def read_stored_ids(self, first: int, last: int) -> NDArray[Any]:
        """As `read_sparse`, `[last - first, P]`, but in the stored type and unchecked: ids may be outside their tables.

        Raises:
            DataError: a shard is missing or damaged.
        """
        rows = self._checked_length(first, last)
        if rows == 0 or not self._plain:
            return np.empty((rows, len(self._plain)), dtype=self._manifest.sparse_dtype)
        pieces = [shard.read("sparse", part.first, part.last) for part, shard in self._parts(first, last)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def read_look_ups(self, first: int, last: int) -> Bags:
        """Ids of rows `first` up to `last`, int64 `[V]`; without offsets where all features have one id a sample.

        Raises:
            DataError: a shard is missing or damaged, offsets of bags are unsound, or an id is outside its table.
        """
        ids = self.read_sparse(first, last)
        if not self._ragged:
            return Bags.one_hot(ids)
        return self._bags(first, last, ids, RaggedReader.ids)

    def read_lengths(self, first: int, last: int) -> Int64s:
        """Number of ids of rows `first` up to `last`, int64 `[last - first, F]`.

        Raises:
            DataError: a shard is missing or damaged, or offsets of bags are unsound.
        """
        lengths = np.ones((self._checked_length(first, last), len(self._table_rows)), dtype=np.int64)
        for feature, reader in self._ragged.items():
            for part, shard in self._parts(first, last):
                lengths[part.at : part.to, feature] = reader.lengths(shard, part.first, part.last)
        return lengths

    def read_id_weights(self, first: int, last: int) -> Bags:
        """The weight of each id of `read_look_ups`, float32 `[V]`; 1 where the feature has no weights.

        Raises:
            DataError: a shard is missing or damaged, offsets of bags are unsound, or a weight is not finite.
        """
        ones = np.ones((self._checked_length(first, last), len(self._plain)), dtype=np.float32)
        if not self._ragged:
            return Bags.one_hot(ones)
        return self._bags(first, last, ones, RaggedReader.weights)

    def read_dense(self, first: int, last: int) -> NDArray[np.float32]:
        """Dense features of rows `first` up to `last`, float32 `[last - first, dense features]`.

        Raises:
            DataError: a shard is missing or damaged, or a feature is no finite number.
        """
        dense = np.empty((self._checked_length(first, last), self._manifest.dense_features), dtype=np.float32)
        for part, shard in self._parts(first, last):
            read = shard.read("dense", part.first, part.last)
            if not np.isfinite(read).all():
                raise shard.unfit(f"a dense feature is {read[~np.isfinite(read)][0]}, no finite number")
            dense[part.at : part.to] = read
        return dense

    def read_labels(self, first: int, last: int) -> NDArray[np.float32]:
        """Labels of rows `first` up to `last`, each 0 or 1: float32 `[last - first]` for one label, else with `K`.

        Raises:
            DataError: a shard is missing or damaged, or a label is neither 0 nor 1.
        """
        rows, names = self._checked_length(first, last), self._manifest.labels
        labels = np.empty((rows, len(names)) if len(names) > 1 else rows, dtype=np.float32)
        for part, shard in self._parts(first, last):
            read = shard.read("label", part.first, part.last)
            if len(read) and read.max() > 1:
                raise shard.unfit(f"a label is {read.max()} instead of 0 or 1")
            labels[part.at : part.to] = read
        return labels

    def read_sample_weights(self, first: int, last: int) -> NDArray[np.float32]:
        """Weights of rows `first` up to `last`, float32 `[last - first]`, finite, 0 or more; 1 where they have none.

        Raises:
            DataError: a shard is missing or damaged, or a weight is negative or not finite.
        """
        weights = np.ones(self._checked_length(first, last), dtype=np.float32)
        for part, shard in self._parts(first, last) if self._manifest.weighted_samples else ():
            read = shard.read("weight", part.first, part.last)
            bad = np.flatnonzero(~(np.isfinite(read) & (read >= 0)))
            if len(bad):
                problem = f"is {read[bad[0]]} instead of a finite number, 0 or more"
                raise shard.unfit(f"the weight of sample {part.first + bad[0]} {problem}")
            weights[part.at : part.to] = read
        return weights

    def _bags(self, first: int, last: int, plain: NDArray[Any], read: ReadColumn) -> Bags:
        """All features' values side by side, row after row.

        Args:
            first: first row.
            last: one more than the last row.
            plain: values of the features with one id a row, `[n, P]`.
            read: gives those of a ragged feature in rows of a shard.
        """
        lengths = np.ones((len(plain), len(self._table_rows)), dtype=np.int64)
        columns: dict[int, list[NDArray[Any]]] = {}
        for feature, reader in self._ragged.items():
            for part, shard in self._parts(first, last):
                lengths[part.at : part.to, feature], values = read(reader, shard, part.first, part.last)
                columns.setdefault(feature, []).append(values)
        offsets = offsets_of(lengths)
        starts = offsets[:-1].reshape(lengths.shape)
        values = np.empty(offsets[-1], dtype=plain.dtype)
        values[starts[:, self._plain]] = plain
        for feature, pieces in columns.items():
            counts = lengths[:, feature]
            # A bag moves as a whole: from behind the feature's earlier bags to behind the row's earlier features.
            moved = starts[:, feature] - (np.cumsum(counts) - counts)
            values[np.repeat(moved, counts) + np.arange(counts.sum())] = np.concatenate(pieces)
        return Bags(values, lengths.shape[1], offsets)

    def _checked_length(self, first: int, last: int) -> int:
        if not 0 <= first <= last <= self.rows:
            raise IndexError(f"rows {first} up to {last} are not within the {self.rows} rows of this split")
        return last - first

    def _parts(self, first: int, last: int) -> Iterator[tuple[_Part, ReadShard]]:
        """Pieces of a range, one a shard, and the shard."""
        if first == last:
            return
        first_shard, last_shard = np.searchsorted(self._bounds, (first, last - 1), side="right") - 1
        for shard in range(int(first_shard), int(last_shard) + 1):
            start = int(self._bounds[shard])
            begin, end = max(first, start), min(last, int(self._bounds[shard + 1]))
            yield _Part(begin - start, end - start, begin - first), self._readers[shard]


def _opened(found: OrderedDict[Path, OpenShard], path: Path, info: ShardInfo, manifest: ShardManifest) -> OpenShard:
    """A shard found among the open ones `found`, or opened and checked; the least recently used make room for it.

    It is no method, since a reader that holds its own method is freed only when Python looks for cycles, and its kept
    chunks with it. In a run, that may be hundreds of segments later, each of which has a reader.
    """
    if path in found:
        found.move_to_end(path)
        return found[path]
    while len(found) >= OPEN_SHARDS:
        found.popitem(last=False)[1].file.close()
    file = open_shard(path)
    try:
        check_datasets(path, file, manifest, info)
    except DataError:
        file.close()
        raise
    found[path] = OpenShard(path, info, file)
    return found[path]
