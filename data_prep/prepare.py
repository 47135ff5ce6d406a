"""`bagpipe prepare`: raw clicks to shards, in one pass over the input and two over the parsed rows.

First the input is parsed into parts (`parse_stage`), then the values of training rows are counted by column
(`vocabulary_stage`), then the shards are written (`shard_stage`); the manifest comes last. Each finished piece is noted
in the folder (`preparation_state`).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bagpipe_hpc.cluster.allocator import keep_freed_arrays
from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.entries import InputInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, save_manifest
from data_prep.backend import choose_backend
from data_prep.formats.load import load_format
from data_prep.input_files import find_sources, order_note
from data_prep.input_ranges import RANGE_BYTES, plan_ranges
from data_prep.ordered_map import worker_threads
from data_prep.parse_stage import check_skipped, parse_input
from data_prep.parsed_rows import ParsedRows
from data_prep.preparation_state import (
    PreparationState,
    describe_inputs,
    is_finished,
    load_finished,
    naming_output,
    remove_unfinished,
    resume_or_start,
)
from data_prep.prepare_settings import PrepareSettings
from data_prep.ranks.progress import Progress
from data_prep.ranks.team import alone
from data_prep.recorded import load_recorded
from data_prep.shard_stage import write_shards


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
    earlier = load_recorded(settings.like) if settings.like is not None else None
    settings = earlier.for_later_rows(settings) if earlier else settings
    source_format, own = load_format(settings.source_format, settings.format_options, settings.schema)
    layout = source_format.layout
    backend, native = choose_backend(settings.backend, source_format)
    sources = find_sources(inputs)
    open_input = source_format.open_input if settings.labelled else source_format.open_unlabelled
    opened = [open_input(source, native) for source in sources]
    inputs_info = describe_inputs(sources)
    choices = settings.choices(layout, own, earlier.digest if earlier else None)
    wanted = PreparationState(inputs_info, choices, tuple(layout.words()), RANGE_BYTES)
    keep_freed_arrays()
    with naming_output(output):
        if is_finished(output):
            finished = load_finished(output, wanted)
            verify_shards(output, finished, "quick")
            check_skipped(finished.skipped_rows, settings.skip_bad_rows)
            remove_unfinished(output)  # A kill right after the manifest leaves it.
            progress(f"{output} is already prepared from these inputs with these settings")
            return finished
        if note := order_note(sources):
            progress(note)
        output.mkdir(parents=True, exist_ok=True)
        work = resume_or_start(output, wanted)
        if work.parts:
            progress(f"going on after {sum(part.rows for part in work.parts)} parsed rows, {len(work.shards)} shards")
        ranges = plan_ranges(sources, opened, work.state.range_bytes)
        team = alone(progress, worker_threads())
        with ThreadPoolExecutor(team.threads) as pool:
            parsed = parse_input(
                team, pool, sources, opened, ranges, source_format.schema, work, settings.skip_bad_rows
            )
            _require_unchanged(wanted.inputs, describe_inputs(sources), output)
            rows = ParsedRows(work.parts_folder, parsed.parts)
            manifest = write_shards(pool, rows, work, parsed.skipped_rows, layout, settings, backend, progress, earlier)
        save_manifest(output, manifest)
        remove_unfinished(output)
    return manifest


def _require_unchanged(before: Sequence[InputInfo], after: Sequence[InputInfo], output: Path) -> None:
    """Refuse rows of which nobody could say whether they were read before or after a change."""
    for old, new in zip(before, after, strict=True):
        if old != new:
            raise DataError(f"{old.file}: changed while it was read; remove {output} and run bagpipe prepare again")
