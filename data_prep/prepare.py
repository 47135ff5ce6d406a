"""`bagpipe prepare`: raw clicks to shards, in one pass over the text and two over the parsed rows.

First the text is parsed into parts (`parsed_rows`), then each column's vocabulary is built from the training rows, then
the shards are written; the manifest comes last. `preparation.json` notes every part and shard that is finished.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.errors import CapacityError, ConfigError, DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.click_shards import CHUNK_ROWS, COMPRESSIONS, Samples, write_shard
from bagpipe_hpc.storage.shard_check import verify_shards
from bagpipe_hpc.storage.shard_manifest import (
    SCHEMA_VERSION,
    SPARSE_INT32_ROWS,
    ShardManifest,
    TableInfo,
    save_manifest,
)
from data_prep import criteo
from data_prep.ordered_map import ordered_map, worker_threads
from data_prep.parsed_rows import ParsedRows, Part
from data_prep.preparation_state import (
    PARTS_FOLDER,
    PreparationState,
    describe_inputs,
    is_finished,
    load_finished,
    remove_unfinished,
    resume_or_start,
)
from data_prep.text_blocks import TextBlock, find_sources, read_blocks
from data_prep.vocabulary import HashedIds, IdMap, Vocabulary

FORMATS = ("criteo",)
PART_ROWS = 1 << 20
"""Rows after which a part is closed: at most this many are parsed again after a kill."""
ENCODE_ROWS = 4 * CHUNK_ROWS
"""Rows that are encoded and written together."""

Progress = Callable[[str], None]
"""Is given a line of progress now and then."""


@dataclass(frozen=True)
class PrepareSettings:
    """How clicks are prepared; a flag of `bagpipe prepare` each."""

    source_format: str = "criteo"
    """Format of the input."""
    min_count: int = 2
    """Training rows in which a value must occur to get an id of its own; rarer ones share id 0 with missing ones."""
    max_rows_per_table: int | None = None
    """Hash the values of each column to this many ids instead of building vocabularies."""
    rows_per_shard: int = 1 << 20
    """Rows of a shard; a multiple of 8192 lets the chunks of all shards line up with the blocks that training reads."""
    test_fraction: float = 0.1
    """Share of the rows, the last ones, that become the test split."""
    compression: str = "lzf"
    """Compression of the shards: `lzf` (fast), `gzip` (a little smaller, any HDF5 reader) or `none`."""
    chunk_checksums: bool = False
    """Store a checksum with every HDF5 chunk, checked on each read."""
    skip_bad_rows: int = 0
    """Most malformed rows that are left out, counted and listed; one more stops the preparation."""

    def __post_init__(self) -> None:
        _require(self.source_format in FORMATS, "format", self.source_format, f"use one of {', '.join(FORMATS)}")
        _require(self.min_count >= 1, "min-count", self.min_count, "use 1 or more")
        if self.max_rows_per_table is not None:
            hashable = 2 <= self.max_rows_per_table < 1 << 63
            _require(hashable, "max-rows-per-table", self.max_rows_per_table, "use 2 or more, less than 2 ** 63")
        _require(self.rows_per_shard >= 1, "rows-per-shard", self.rows_per_shard, "use 1 or more")
        _require(0 <= self.test_fraction < 1, "test-fraction", self.test_fraction, "use 0 or more, less than 1")
        _require(self.compression in COMPRESSIONS, "compression", self.compression, f"use {', '.join(COMPRESSIONS)}")
        _require(self.skip_bad_rows >= 0, "skip-bad-rows", self.skip_bad_rows, "use 0 or more")

    def choices(self) -> dict[str, Any]:
        """Everything that decides what the shards hold, in words where a number does not say it.

        `skip_bad_rows` is not among them: which rows are malformed does not depend on it, so a preparation that stopped
        at one may go on with a larger limit.
        """
        choices = asdict(self)
        del choices["skip_bad_rows"]
        hashed = self.max_rows_per_table is not None
        if hashed:
            del choices["min_count"]
        return choices | {
            "ids": "0 missing; else 1 + MurmurHash3 fmix64(value) mod (max_rows_per_table - 1)"
            if hashed
            else "0 missing or in fewer than min_count training rows; else from 1 by descending count, then value",
            "dense": "log(1 + max(x, 0)); 0 missing",
            "split": "time order: the last round(test_fraction * rows) rows are the test split",
        }


def _require(holds: bool, flag: str, value: object, cure: str) -> None:
    if not holds:
        raise ConfigError(f"prepare: {flag} = {value!r}: {cure}")


def prepare_clicks(
    inputs: Sequence[str], output: Path, settings: PrepareSettings, progress: Callable[[str], None]
) -> ShardManifest:
    """Turn raw clicks into a shard directory; after a kill, the same call goes on where the last one stopped.

    Memory is that of a few blocks per core, plus the counts of as many columns as there are threads (at most four) and
    the vocabularies: see docs/data.md. A finished directory of the same inputs and settings is left as it is.

    Args:
        inputs: names and glob patterns of input files, in time order.
        output: folder for the shards; made where it does not exist.
        settings: how to prepare.
        progress: is given a line after each part, vocabulary and shard.

    Returns:
        The manifest, which is also written to the folder.

    Raises:
        DataError: an input is missing, damaged or malformed, or `output` holds something else or cannot be written.
        CapacityError: the disk is full.
    """
    sources = find_sources(inputs)
    wanted = PreparationState(describe_inputs(sources), settings.choices())
    if is_finished(output):
        finished = load_finished(output, wanted)
        verify_shards(output, finished, "quick")
        _check_skipped(finished.skipped_rows, settings.skip_bad_rows)
        remove_unfinished(output)  # A kill right after the manifest leaves it.
        progress(f"{output} is already prepared from these inputs with these settings")
        return finished
    try:
        output.mkdir(parents=True, exist_ok=True)
        state = resume_or_start(output, wanted)
        if state.parts:
            progress(f"going on after {sum(part.rows for part in state.parts)} parsed rows, {len(state.shards)} shards")
        with ThreadPoolExecutor(worker_threads()) as pool:
            state = _parse(pool, sources, output, state, settings, progress)
            rows = ParsedRows(output / PARTS_FOLDER, state.parts)
            manifest = _write_shards(pool, rows, output, state, settings, progress)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise CapacityError(
                f"{output}: the disk is full; free some space and run bagpipe prepare again to go on where it stopped"
            ) from error
        raise DataError(f"{output}: cannot be written ({error}); check the path and its permissions") from error
    save_manifest(output, manifest)
    remove_unfinished(output)
    return manifest


def _parse(
    pool: ThreadPoolExecutor,
    sources: Sequence[Path],
    output: Path,
    state: PreparationState,
    settings: PrepareSettings,
    progress: Progress,
) -> PreparationState:
    """Parse what is not yet parsed; saves the state after each part."""

    def parse(block: TextBlock) -> tuple[TextBlock, pa.RecordBatch, list[criteo.BadLine]]:
        return block, *criteo.parse_block(block.text)

    _check_skipped(state.skipped_rows, settings.skip_bad_rows)
    if state.parsed:
        return state
    blocks = ordered_map(pool, parse, read_blocks(sources, state.position), ahead=2 * worker_threads())
    while True:
        name = f"rows-{len(state.parts):05d}.arrow"
        rows, end, skipped = 0, state.position, list[str]()
        with (
            atomic_write(output / PARTS_FOLDER / name) as partial,
            pa.OSFile(str(partial), "wb") as sink,
            pa.ipc.new_file(sink, criteo.ROW_SCHEMA) as file,
        ):
            for block, batch, bad in blocks:
                source = sources[block.start.source]
                skipped += [f"{source}:{block.start.line + line.index + 1}: {line.reason}" for line in bad]
                _check_skipped(state.skipped_rows + tuple(skipped), settings.skip_bad_rows)
                file.write_batch(batch)
                rows, end = rows + len(batch), block.end
                if rows >= PART_ROWS:
                    break
        if end == state.position:  # Nothing was left to parse.
            (output / PARTS_FOLDER / name).unlink()
            break
        state = state.with_part(Part(name, rows, end, tuple(skipped)))
        state.save(output)
        total = sum(part.rows for part in state.parts)
        progress(f"parsed {total} rows, up to {sources[end.source]}:{end.line}; skipped {len(state.skipped_rows)}")
    state = replace(state, parsed=True)
    state.save(output)
    return state


def _check_skipped(skipped: Sequence[str], allowed: int) -> None:
    if len(skipped) > allowed:
        limit = f" (more than the {allowed} malformed rows that are allowed)" if allowed else ""
        raise DataError(f"{skipped[allowed]}{limit}; correct the row, or leave such rows out with --skip-bad-rows N")


def _build_id_maps(
    pool: ThreadPoolExecutor, rows: ParsedRows, train_rows: int, settings: PrepareSettings, progress: Progress
) -> list[IdMap]:
    """An id map for each table; vocabularies see the training rows only."""
    if settings.max_rows_per_table is not None:
        return [HashedIds(settings.max_rows_per_table) for _ in criteo.TABLE_NAMES]

    def build(name: str) -> Vocabulary:
        return Vocabulary.of_column(rows.column(name, train_rows), settings.min_count)

    # Each column that is counted holds its distinct values in memory, so not one per core of a large machine.
    vocabularies = list(ordered_map(pool, build, criteo.TABLE_NAMES, ahead=min(4, worker_threads())))
    progress(f"built vocabularies of {sum(vocabulary.rows for vocabulary in vocabularies)} ids from {train_rows} rows")
    return list(vocabularies)


def _write_shards(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    output: Path,
    state: PreparationState,
    settings: PrepareSettings,
    progress: Progress,
) -> ShardManifest:
    """Write the shards that are not yet written; saves the state after each."""
    test_rows = round(rows.rows * settings.test_fraction)
    train_rows = rows.rows - test_rows
    if train_rows == 0:
        raise DataError(
            f"{rows.rows} good rows in the inputs leave none to train on; check the inputs and test-fraction"
        )
    id_maps = _build_id_maps(pool, rows, train_rows, settings, progress)
    tables = tuple(TableInfo(name, ids.rows) for name, ids in zip(criteo.TABLE_NAMES, id_maps, strict=True))
    sparse_dtype = np.int32 if max(table.rows for table in tables) <= SPARSE_INT32_ROWS else np.int64

    def encode(bounds: tuple[int, int]) -> Samples:
        return _encode(rows.read(*bounds), bounds[1] - bounds[0], id_maps, sparse_dtype)

    plan = list(_plan_shards("train", 0, train_rows, settings.rows_per_shard))
    train_shards = len(plan)
    plan += _plan_shards("test", train_rows, rows.rows, settings.rows_per_shard)
    for name, first, last in plan[len(state.shards) :]:
        pieces = [(at, min(at + ENCODE_ROWS, last)) for at in range(first, last, ENCODE_ROWS)]
        samples = ordered_map(pool, encode, pieces, ahead=2 * worker_threads())
        shard = write_shard(output / name, last - first, samples, settings.compression, settings.chunk_checksums)
        state = state.with_shard(shard)
        state.save(output)
        progress(f"wrote {name}: {shard.rows} rows")
    return ShardManifest(
        schema_version=SCHEMA_VERSION,
        source_format=settings.source_format,
        dense_features=len(criteo.INTEGER_NAMES),
        tables=tables,
        train=state.shards[:train_shards],
        test=state.shards[train_shards:],
        inputs=state.inputs,
        settings=state.settings,
        skipped_rows=state.skipped_rows,
    )


def _plan_shards(split: str, first: int, last: int, rows_per_shard: int) -> Iterator[tuple[str, int, int]]:
    """Name, first row and row after the last of each shard of rows `first` up to `last`."""
    for number, start in enumerate(range(first, last, rows_per_shard)):
        yield f"{split}-{number:05d}.h5", start, min(start + rows_per_shard, last)


def _encode(pieces: Sequence[pa.RecordBatch], rows: int, id_maps: Sequence[IdMap], sparse_dtype: type) -> Samples:
    """Samples of parsed rows: dense float32 `[rows, 13]`, ids `[rows, 26]`, labels uint8 `[rows]`."""
    dense = np.empty((rows, len(criteo.INTEGER_NAMES)), dtype=np.float32)
    sparse: NDArray[np.int32] | NDArray[np.int64] = np.empty((rows, len(id_maps)), dtype=sparse_dtype)
    label = np.empty(rows, dtype=np.uint8)
    at = 0
    for piece in pieces:
        until = at + len(piece)
        label[at:until] = piece.column("label").to_numpy()
        for column, name in enumerate(criteo.INTEGER_NAMES):
            dense[at:until, column] = piece.column(name).to_numpy()
        for table, (name, id_map) in enumerate(zip(criteo.TABLE_NAMES, id_maps, strict=True)):
            sparse[at:until, table] = id_map.ids(piece.column(name))
        at = until
    return dense, sparse, label
