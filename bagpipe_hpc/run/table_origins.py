"""Where a table's first rows come from, if not from the seed: a checkpoint, by id or by raw value.

Row numbers of a run and of a checkpoint differ where a table has grown, or where tables are grouped in another way; ids
within a table do not, or their values say which is which.

Shapes: n ids of a piece of a table, D its width, k optimizer state columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.groups import TableGroup
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.saved_rows import stream_rows
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.vocabulary import TableVocabulary, read_table_vocabulary

NewIds = Callable[[int, int], NDArray[np.int64]]
"""Ids `[n]` in the run's table of the ids `first` up to `last` of the checkpoint's; -1 where it has none for them."""


@dataclass(frozen=True)
class TableOrigin:
    """What a table begins with.

    Attributes:
        table: its name.
        source: number of the checkpoint's table of that name.
        values_of: the shards that the checkpoint was trained on, where ids are told by their values; None where an id
            means the same in both.
    """

    table: str
    source: int
    values_of: Path | None = None


@dataclass(frozen=True)
class Origins:
    """What the tables of a run begin with: the rows of a checkpoint.

    Attributes:
        checkpoint: that has them.
        tables: of which; the others begin as the seed says.
        with_state: whether the optimizer's state comes with the weights.
    """

    checkpoint: Checkpoint
    tables: tuple[TableOrigin, ...]
    with_state: bool

    def lay_over(
        self,
        group: TableGroup,
        partition: RowPartition,
        server: int,
        into: NDArray[np.float32] | DiskRows,
        shards: tuple[Path, ShardManifest],
    ) -> None:
        """Write the rows that a server has of the checkpoint over the first values in its window.

        Every server reads the checkpoint's tables from end to end, in pieces, and keeps what is its own.

        Args:
            group: the tables of one width.
            partition: where their rows lie.
            server: whose window it is.
            into: float32 `[rows on the server, D + k]`, any strides.
            shards: the run's data, and its manifest.

        Raises:
            CheckpointError: a file of the checkpoint is damaged.
            DataError: a file of values is missing or damaged.
        """
        origins = {origin.table: origin for origin in self.tables}
        first_rows = group.tables.offsets[:-1].tolist()
        for name, first_row, rows in zip(group.tables.names, first_rows, group.tables.rows, strict=True):
            if name in origins:
                new_ids = _new_ids(origins[name], rows, *shards)
                self._lay_table(origins[name], new_ids, first_row, partition, server, into)

    def _lay_table(
        self,
        origin: TableOrigin,
        new_ids: NewIds,
        first_row: int,
        partition: RowPartition,
        server: int,
        into: NDArray[np.float32] | DiskRows,
    ) -> None:
        manifest = self.checkpoint.manifest
        number = next(place for place, group in enumerate(manifest.groups) if origin.source in group.numbers)
        source = manifest.groups[number]
        place = source.numbers.index(origin.source)
        begin, end = source.tables.offsets[place : place + 2].tolist()
        columns = manifest.record_columns(source.width) if self.with_state else source.width
        with self.checkpoint.open_rows(number) as saved:
            step = stream_rows(manifest.record_columns(source.width))
            for first in range(begin, end, step):
                last = min(first + step, end)
                ids = new_ids(first - begin, last - begin)
                rows = first_row + np.maximum(ids, 0)
                own = np.flatnonzero((ids >= 0) & (partition.owner(rows) == server))
                if own.size:
                    into[partition.offset(rows[own]), :columns] = saved.read(first, last)[own, :columns]


@dataclass(frozen=True)
class WarmStart:
    """The checkpoint whose weights a new training begins with.

    Attributes:
        checkpoint: it.
        rows: which of its rows are taken; None where none are.
        takes_dense: whether its dense weights are.
    """

    checkpoint: Checkpoint
    rows: Origins | None
    takes_dense: bool


def _new_ids(origin: TableOrigin, rows: int, directory: Path, shards: ShardManifest) -> NewIds:
    """Which id of a table of `rows` ids each of the checkpoint's ids is."""
    if origin.values_of is not None:
        earlier = read_table_vocabulary(origin.values_of, load_manifest(origin.values_of), origin.table)
        found = ids_by_value(earlier, read_table_vocabulary(directory, shards, origin.table))
        return lambda first, last: found[first:last]

    def same(first: int, last: int) -> NDArray[np.int64]:
        ids = np.arange(first, last, dtype=np.int64)
        ids[ids >= rows] = -1
        return ids

    return same


def ids_by_value(earlier: TableVocabulary, later: TableVocabulary) -> NDArray[np.int64]:
    """The ids in a later vocabulary of all ids of an earlier one, int64 `[rows of the earlier one]`.

    Id 0 stays id 0, and unseen buckets stay where there are as many; -1 where an id's value has none any more.
    """
    found = np.full(earlier.rows, -1, dtype=np.int64)
    alike = earlier.unseen_buckets == later.unseen_buckets
    found[: 1 + earlier.unseen_buckets * alike] = np.arange(1 + earlier.unseen_buckets * alike)
    if (earlier.values.dtype == np.object_) is (later.values.dtype == np.object_):  # texts are no numbers
        _, before, now = np.intersect1d(earlier.values, later.values, assume_unique=True, return_indices=True)
        found[earlier.ids[before]] = later.ids[now]
    return found
