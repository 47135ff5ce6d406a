"""`bagpipe prepare`: raw clicks to shards, in one pass over the text and two over the parsed rows.

First the text is parsed into parts (`parsed_rows`), then the values of training rows are counted by column, then the
shards are written; the manifest comes last. `preparation.json` notes every part and shard that is finished.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from bagpipe_hpc.cluster.allocator import keep_freed_arrays
from bagpipe_hpc.errors import CapacityError, DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.output_errors import DISK_IS_FULL, reason
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.entries import InputInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, save_manifest
from data_prep.backend import choose_backend
from data_prep.formats.delimited import BadLine
from data_prep.formats.source_format import ColumnInput, TextInput, load_format
from data_prep.input_blocks import InputBlock, parse_input_block, read_input_blocks
from data_prep.input_files import find_sources, order_note
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
from data_prep.prepare_settings import PrepareSettings
from data_prep.shard_stage import write_shards
from data_prep.text_blocks import TextPosition

PART_ROWS = 1 << 20
"""Rows after which a part is closed: at most this many are parsed again after a kill."""

Progress = Callable[[str], None]
"""Is given a line of progress now and then."""


def prepare_clicks(inputs: Sequence[str], output: Path, settings: PrepareSettings, progress: Progress) -> ShardManifest:
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
        ConfigError: there is no such source format, its settings are wrong, or native code is asked for and was not
            built.
    """
    source_format, own = load_format(settings.source_format, settings.format_options)
    layout = source_format.layout
    backend, native = choose_backend(settings.backend, source_format)
    sources = find_sources(inputs)
    opened = [source_format.open_input(source, native) for source in sources]
    wanted = PreparationState(describe_inputs(sources), settings.choices(layout, own), layout.words())
    keep_freed_arrays()
    with _naming_output(output):
        if is_finished(output):
            finished = load_finished(output, wanted)
            verify_shards(output, finished, "quick")
            _check_skipped(finished.skipped_rows, settings.skip_bad_rows)
            remove_unfinished(output)  # A kill right after the manifest leaves it.
            progress(f"{output} is already prepared from these inputs with these settings")
            return finished
        if note := order_note(sources):
            progress(note)
        output.mkdir(parents=True, exist_ok=True)
        state = resume_or_start(output, wanted)
        if state.parts:
            progress(f"going on after {sum(part.rows for part in state.parts)} parsed rows, {len(state.shards)} shards")
        with ThreadPoolExecutor(worker_threads()) as pool:
            state = _parse(pool, sources, opened, output, state, settings, source_format.schema, progress)
            rows = ParsedRows(output / PARTS_FOLDER, state.parts)
            manifest = write_shards(pool, rows, output, state, layout, settings, backend, progress)
        save_manifest(output, manifest)
        remove_unfinished(output)
    return manifest


@contextmanager
def _naming_output(output: Path) -> Iterator[None]:
    """Turn what the system says about the output folder into an error that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_IS_FULL:
            raise CapacityError(
                f"{output}: the disk is full; free some space and run bagpipe prepare again to go on where it stopped"
            ) from error
        raise DataError(f"{output}: cannot be written ({reason(error)}); check the path and its permissions") from error


def _parse(
    pool: ThreadPoolExecutor,
    sources: Sequence[Path],
    opened: Sequence[TextInput | ColumnInput],
    output: Path,
    state: PreparationState,
    settings: PrepareSettings,
    schema: pa.Schema,
    progress: Progress,
) -> PreparationState:
    """Parse what is not yet parsed; saves the state after each part."""

    def parse(block: InputBlock) -> tuple[TextPosition, int, pa.RecordBatch, list[BadLine]]:
        return block.end, *parse_input_block(block, opened)

    _check_skipped(state.skipped_rows, settings.skip_bad_rows)
    if state.parsed:
        return state
    blocks = ordered_map(pool, parse, read_input_blocks(sources, opened, state.position), ahead=2 * worker_threads())
    while True:
        name = f"rows-{len(state.parts):05d}.arrow"
        rows, end, skipped = 0, state.position, list[str]()
        with (
            atomic_write(output / PARTS_FOLDER / name) as partial,
            pa.OSFile(str(partial), "wb") as sink,
            pa.ipc.new_file(sink, schema) as file,
        ):
            for block_end, first_line, batch, bad in blocks:
                source = sources[block_end.source]
                skipped += [f"{source}:{first_line + line.index + 1}: {line.reason}" for line in bad]
                _check_skipped(state.skipped_rows + tuple(skipped), settings.skip_bad_rows)
                file.write_batch(batch)
                rows, end = rows + len(batch), block_end
                if rows >= PART_ROWS:
                    break
        if end == state.position:  # Nothing was left to parse.
            (output / PARTS_FOLDER / name).unlink()
            break
        state = state.with_part(Part(name, rows, end, tuple(skipped)))
        state.save(output)
        total = sum(part.rows for part in state.parts)
        progress(f"parsed {total} rows, up to {sources[end.source]}:{end.line}; skipped {len(state.skipped_rows)}")
    _require_unchanged(state.inputs, describe_inputs(sources), output)
    state = replace(state, parsed=True)
    state.save(output)
    return state


def _require_unchanged(before: Sequence[InputInfo], after: Sequence[InputInfo], output: Path) -> None:
    """Refuse rows of which nobody could say whether they were read before or after a change."""
    for old, new in zip(before, after, strict=True):
        if old != new:
            raise DataError(f"{old.file}: changed while it was read; remove {output} and run bagpipe prepare again")


def _check_skipped(skipped: Sequence[str], allowed: int) -> None:
    if len(skipped) > allowed:
        limit = f" (more than the {allowed} malformed rows that are allowed)" if allowed else ""
        raise DataError(f"{skipped[allowed]}{limit}; correct the row, or leave such rows out with --skip-bad-rows N")
