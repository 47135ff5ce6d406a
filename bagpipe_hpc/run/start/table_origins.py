"""Where a table's first rows come from, if not from the seed: a trained model, by id or by raw value.

Row numbers of a run and of a checkpoint differ where a table has grown, or where tables are grouped in another way; ids
within a table do not, or their values say which is which.

Shapes: n ids of a piece of a table, D its width, k optimizer state columns.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.groups import TableGroup
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.saved_rows import stream_rows
from bagpipe_hpc.storage.exported import ExportedModel, TrainedTable
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.vocabularies.id_uses import read_reborn
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary, read_table_vocabulary

NewIds = Callable[[int, int], NDArray[np.int64]]
"""Ids `[n]` in the run's table of the ids `first` up to `last` of the trained one; -1 where it has none for them."""


class TrainedTables(Protocol):
    """Tables with trained rows."""

    def open_table(self, table: str) -> AbstractContextManager[TrainedTable]:
        """Open one for reading."""


@dataclass(frozen=True)
class SavedTables:
    """The tables of a checkpoint.

    Attributes:
        checkpoint: it.
        with_state: whether the optimizer's state comes with the weights.
    """

    checkpoint: Checkpoint
    with_state: bool

    @contextmanager
    def open_table(self, table: str) -> Iterator[TrainedTable]:
        """Open one for reading.

        Raises:
            CheckpointError: a file is damaged.
        """
        manifest = self.checkpoint.manifest
        groups = enumerate(manifest.groups)
        number, group = next((number, group) for number, group in groups if table in group.tables.names)
        place = group.tables.names.index(table)
        begin = int(group.tables.offsets[place])
        saved_columns = manifest.record_columns(group.width)
        columns = saved_columns if self.with_state else group.width
        with self.checkpoint.open_rows(number) as saved:
            yield TrainedTable(
                group.tables.rows[place],
                stream_rows(saved_columns),
                lambda first, last: saved.read(begin + first, begin + last)[:, :columns],
            )


@dataclass(frozen=True)
class TableOrigin:
    """What a table begins with.

    Attributes:
        table: its name, here and in the trained model.
        values_of: what says the values of the trained model's ids, shards or the exported model itself, where rows go
            by value; None where an id means the same in both.
    """

    table: str
    values_of: Path | ExportedModel | None = None


@dataclass(frozen=True)
class Origins:
    """What the tables of a run begin with: the rows of a trained model.

    Attributes:
        rows: the trained rows.
        tables: of which; the others begin as the seed says.
        has_grown: whether the run's vocabulary has grown out of that of the trained model: ids that have another value
            now begin anew.
    """

    rows: TrainedTables
    tables: tuple[TableOrigin, ...]
    has_grown: bool = False

    def lay_over(
        self,
        group: TableGroup,
        partition: RowPartition,
        server: int,
        into: NDArray[np.float32] | DiskRows,
        shards: tuple[Path, ShardManifest],
    ) -> None:
        """Write the trained rows that a server has over the first values in its window.

        Every server reads the trained tables from end to end, in pieces, and keeps what is its own.

        Args:
            group: the tables of one width.
            partition: where their rows lie.
            server: whose window it is.
            into: float32 `[rows on the server, D + k]`, any strides.
            shards: the run's data, and its manifest.

        Raises:
            CheckpointError: a file of the trained model is damaged.
            DataError: a file of values is missing or damaged.
        """
        origins = {origin.table: origin for origin in self.tables}
        first_rows = group.tables.offsets[:-1].tolist()
        for name, first_row, rows in zip(group.tables.names, first_rows, group.tables.rows, strict=True):
            if name not in origins:
                continue
            reborn = read_reborn(*shards, name) if self.has_grown else np.empty(0, np.int64)
            new_ids = _new_ids(origins[name], rows, reborn, *shards)
            with self.rows.open_table(name) as trained:
                for first in range(0, trained.rows, trained.piece_rows):
                    last = min(first + trained.piece_rows, trained.rows)
                    ids = new_ids(first, last)
                    numbers = first_row + np.maximum(ids, 0)
                    own = np.flatnonzero((ids >= 0) & (partition.owner(numbers) == server))
                    if own.size:
                        records = trained.read(first, last)[own]
                        into[partition.offset(numbers[own]), : records.shape[1]] = records

    def rows_taken(self, table: str, trained_rows: int, shards: tuple[Path, ShardManifest]) -> int:
        """How many rows of a table of the run begin with trained ones.

        Args:
            table: one of `tables`.
            trained_rows: rows that the trained model has of it.
            shards: the run's data, and its manifest.

        Raises:
            CheckpointError: a file of the trained model is damaged.
            DataError: a file of values is missing or damaged.
        """
        origin = next(origin for origin in self.tables if origin.table == table)
        if origin.values_of is not None:
            return int(np.count_nonzero(_by_value(origin.values_of, table, *shards) >= 0))
        shared = min(trained_rows, next(info.rows for info in shards[1].tables if info.name == table))
        reborn = read_reborn(*shards, table) if self.has_grown else np.empty(0, np.int64)
        return shared - int(np.count_nonzero(reborn < shared))


@dataclass(frozen=True)
class WarmStart:
    """The trained model whose weights a new training begins with.

    Attributes:
        source: it.
        rows: which of its rows are taken; None where none are.
        takes_dense: whether its dense weights are.
    """

    source: Checkpoint | ExportedModel
    rows: Origins | None
    takes_dense: bool


def _new_ids(
    origin: TableOrigin, rows: int, reborn: NDArray[np.int64], directory: Path, shards: ShardManifest
) -> NewIds:
    """Which id of a table of `rows` ids, of which some are reborn, each of the trained model's ids is."""
    if origin.values_of is not None:
        found = _by_value(origin.values_of, origin.table, directory, shards)
        return lambda first, last: found[first:last]

    def same(first: int, last: int) -> NDArray[np.int64]:
        ids = np.arange(first, last, dtype=np.int64)
        ids[(ids >= rows) | np.isin(ids, reborn)] = -1
        return ids

    return same


def _by_value(values_of: Path | ExportedModel, table: str, directory: Path, shards: ShardManifest) -> NDArray[np.int64]:
    if isinstance(values_of, ExportedModel):
        earlier = values_of.vocabulary(table)
    else:
        earlier = read_table_vocabulary(values_of, load_manifest(values_of), table)
    return ids_by_value(earlier, read_table_vocabulary(directory, shards, table))


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
