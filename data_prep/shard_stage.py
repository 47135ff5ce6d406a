"""The second half of a preparation: from parsed rows to vocabularies, and through them to shards.

Threads count columns, then encode pieces of rows; the calling thread writes. Pieces of the next shard are encoded while
a finished one is checksummed and forced to the disk.

Shapes: `n` rows of a piece, `N` dense features, `F` tables.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.encoded import EncodedSamples, encode_samples, write_encoded_shard
from bagpipe_hpc.storage.shards.manifest import (
    SCHEMA_VERSION,
    SPARSE_INT32_ROWS,
    ShardInfo,
    ShardManifest,
    TableInfo,
)
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, Samples
from bagpipe_hpc.storage.shards.vocabulary import TableValues, load_vocabularies, write_vocabularies
from bagpipe_hpc.storage.shards.writer import write_shard
from data_prep.backend import Backend, IdMaps
from data_prep.formats.layout import TextLayout
from data_prep.ordered_map import ordered_map, worker_threads
from data_prep.parsed_rows import ParsedRows
from data_prep.preparation_state import PreparationState
from data_prep.prepare_settings import PrepareSettings
from data_prep.vocabulary import Ids

Block = TypeVar("Block", Samples, EncodedSamples)

ENCODE_ROWS = 4 * CHUNK_ROWS
"""Rows that are encoded and written together."""


class Piece(NamedTuple):
    """Rows `first` up to `last` of all rows, whose shard has `shard_rows`."""

    first: int
    last: int
    shard_rows: int


@dataclass(frozen=True)
class PlannedShard:
    """A shard of rows `first` up to `last`."""

    name: str
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.last - self.first

    def pieces(self) -> list[Piece]:
        """Its rows in pieces that begin at chunks."""
        return [
            Piece(at, min(at + ENCODE_ROWS, self.last), self.rows) for at in range(self.first, self.last, ENCODE_ROWS)
        ]


def write_shards(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    output: Path,
    state: PreparationState,
    layout: TextLayout,
    settings: PrepareSettings,
    backend: Backend,
    progress: Callable[[str], None],
) -> ShardManifest:
    """Write the shards that are not yet written; saves the state after each.

    Returns:
        The manifest, which is not yet written.

    Raises:
        DataError: there is no row to train on.
    """
    train_rows = rows.rows - round(rows.rows * settings.test_fraction)
    if train_rows == 0:
        named = ", ".join(source.file for source in state.inputs)
        raise DataError(f"{named}: {rows.rows} good rows leave none to train on; check the inputs and --test-fraction")
    if train_rows == rows.rows and settings.test_fraction > 0:
        progress(f"note: no row is left for tests: {settings.test_fraction} of {rows.rows} rows is less than one")
    state, vocabularies = _make_vocabularies(pool, rows, train_rows, output, state, layout, settings, backend, progress)
    hashed_rows = settings.max_rows_per_table or 2  # without a limit none is hashed
    id_maps = backend.id_maps(layout.sparse, vocabularies, hashed_rows)
    table_rows = [hashed_rows if values is None else len(values) + 1 for values in vocabularies]
    reader = _PieceReader(rows, layout, id_maps, np.int32 if max(table_rows) <= SPARSE_INT32_ROWS else np.int64)
    train = list(_plan_shards("train", 0, train_rows, settings.rows_per_shard))
    plan = train + list(_plan_shards("test", train_rows, rows.rows, settings.rows_per_shard))
    for shard in _write_planned(pool, plan[len(state.shards) :], output, reader, settings, backend):
        state = state.with_shard(shard)
        state.save(output)
        progress(f"wrote {shard.file}: {shard.rows} rows")
    return ShardManifest(
        schema_version=SCHEMA_VERSION,
        source_format=settings.source_format,
        dense_features=len(layout.dense),
        tables=tuple(TableInfo(name, ids) for name, ids in zip(layout.tables, table_rows, strict=True)),
        train=state.shards[: len(train)],
        test=state.shards[len(train) :],
        inputs=state.inputs,
        settings=state.settings,
        skipped_rows=state.skipped_rows,
        vocabularies=state.vocabularies,
        hashed_tables=tuple(name for name, values in zip(layout.tables, vocabularies, strict=True) if values is None),
    )


def _make_vocabularies(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    train_rows: int,
    output: Path,
    state: PreparationState,
    layout: TextLayout,
    settings: PrepareSettings,
    backend: Backend,
    progress: Callable[[str], None],
) -> tuple[PreparationState, list[TableValues | None]]:
    """The values of each table in the order of their ids: those that are saved, or those of the training rows."""
    if state.vocabularies is not None:
        saved = load_vocabularies(output / state.vocabularies.file, layout.tables)
        return state, [saved.get(name) for name in layout.tables]
    limit = settings.max_rows_per_table
    min_count, most_values = (settings.min_count, None) if limit is None else (1, limit - 1)
    vocabularies = backend.build_vocabularies(pool, rows, layout.sparse, train_rows, min_count, most_values)
    found = {name: values for name, values in zip(layout.tables, vocabularies, strict=True) if values is not None}
    state = replace(state, vocabularies=write_vocabularies(output, found))
    state.save(output)
    ids = sum(len(values) + 1 for values in found.values())
    hashed = [name for name in layout.tables if name not in found]
    others = f"; {', '.join(hashed)} hashed to {limit} ids each" if hashed else ""
    progress(f"built vocabularies of {ids} ids from {train_rows} rows{others}")
    return state, vocabularies


class _PieceReader:
    """Reads parsed rows as samples, from any thread."""

    def __init__(self, rows: ParsedRows, layout: TextLayout, id_maps: IdMaps, sparse_dtype: type) -> None:
        self._rows = rows
        self._layout = layout
        self._id_maps = id_maps
        self._sparse_dtype = sparse_dtype

    def read(self, piece: Piece) -> Samples:
        """Dense features float32 `[n, N]`, ids `[n, F]`, labels uint8 `[n]`."""
        rows = piece.last - piece.first
        dense = np.empty((rows, len(self._layout.dense)), dtype=np.float32)
        sparse: Ids = np.empty((rows, len(self._layout.tables)), dtype=self._sparse_dtype)
        label = np.empty(rows, dtype=np.uint8)
        at = 0
        for batch in self._rows.read(piece.first, piece.last):
            until = at + len(batch)
            label[at:until] = batch.column("label").to_numpy()
            if self._layout.dense:
                dense[at:until] = batch.column("dense").flatten().to_numpy().reshape(len(batch), -1)
            self._id_maps.write_ids([batch.column(name) for name in self._layout.tables], sparse[at:until])
            at = until
        return Samples(dense, sparse, label)


def _plan_shards(split: str, first: int, last: int, rows_per_shard: int) -> Iterator[PlannedShard]:
    for number, start in enumerate(range(first, last, rows_per_shard)):
        yield PlannedShard(f"{split}-{number:05d}.h5", start, min(start + rows_per_shard, last))


def _write_planned(
    pool: ThreadPoolExecutor,
    plan: Sequence[PlannedShard],
    output: Path,
    reader: _PieceReader,
    settings: PrepareSettings,
    backend: Backend,
) -> Iterator[ShardInfo]:
    """Write shards one after the other; where threads cannot compress, HDF5 does."""
    compression, checksums = settings.compression, settings.chunk_checksums
    if backend.encoders is None or checksums:  # HDF5 alone writes the checksums of chunks.
        yield from _encode_and_write(
            pool, plan, output, reader.read, partial(write_shard, compression=compression, chunk_checksums=checksums)
        )
        return
    encoder = backend.encoders[compression]

    def encode(piece: Piece) -> EncodedSamples:
        return encode_samples(reader.read(piece), piece.shard_rows, encoder)

    yield from _encode_and_write(
        pool, plan, output, encode, partial(write_encoded_shard, compression=compression, encode=encoder)
    )


def _encode_and_write(
    pool: ThreadPoolExecutor,
    plan: Sequence[PlannedShard],
    output: Path,
    encode: Callable[[Piece], Block],
    write: Callable[[Path, int, Iterable[Block]], ShardInfo],
) -> Iterator[ShardInfo]:
    pieces = (piece for shard in plan for piece in shard.pieces())
    blocks = ordered_map(pool, encode, pieces, ahead=2 * worker_threads())
    for shard in plan:
        yield write(output / shard.name, shard.rows, islice(blocks, len(shard.pieces())))
