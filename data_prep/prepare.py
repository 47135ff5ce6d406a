"""`bagpipe prepare`: raw clicks to shards, in one pass over the input and two over the parsed rows.

First the input is parsed into parts (`stages.parse`), then the values of training rows are counted by column
(`stages.count`), then the shards are written (`stages.write`); the manifest comes last. Each finished piece is noted in
the folder (`preparation_state`).
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bagpipe_hpc.cluster.allocator import keep_freed_arrays
from bagpipe_hpc.errors import CapacityError, ConfigError, DataError, not_text
from bagpipe_hpc.storage.run_lock import LOCK_NAME, RunLock
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.manifest import ShardManifest, save_manifest
from bagpipe_hpc.terminal import counted
from data_prep.backend import Backend, choose_backend
from data_prep.formats.checked_rows import checked_parser, checked_refinement, parses_itself
from data_prep.formats.load import load_format
from data_prep.formats.source_format import ColumnInput, SourceFormat, TextInput
from data_prep.inputs.files import find_sources, order_note
from data_prep.inputs.ranges import RANGE_BYTES, InputRange, plan_ranges
from data_prep.ordered_map import worker_threads
from data_prep.parsed_rows import ParsedRows
from data_prep.preparation_state import (
    FITTED,
    PreparationState,
    WorkFolder,
    describe_inputs,
    is_finished,
    load_finished,
    naming_output,
    remove_unfinished,
    resume_or_start,
    shown_names,
)
from data_prep.prepare_settings import PrepareSettings
from data_prep.ranks.progress import Progress
from data_prep.ranks.team import Team, alone
from data_prep.recorded import RecordedPreparation, load_recorded
from data_prep.room import check_room
from data_prep.splits import split_rows
from data_prep.stages.fit import fit_rows
from data_prep.stages.parse import ParseTask, check_skipped, parse_input
from data_prep.stages.stage_inputs import StageInputs
from data_prep.stages.write import write_shards


def prepare_clicks(
    inputs: Sequence[str],
    output: Path,
    settings: PrepareSettings,
    progress: Progress,
    team: Team | None = None,
    made_for: Path | None = None,
) -> ShardManifest:
    """Turn raw clicks into a shard directory; after a kill, the same call goes on where the last one stopped.

    Memory is that of a few blocks per core, plus the counts of as many columns as there are threads (at most four) and
    the vocabularies: see docs/data.md. A finished directory of the same inputs and settings is left as it is.

    Collective over: all ranks of `team`.

    Args:
        inputs: names and glob patterns of input files, in time order.
        output: folder for the shards, which all ranks share; made where it does not exist.
        settings: how to prepare.
        progress: called with a line now and then, on the first rank only.
        team: the ranks that share the work; None for this process alone.
        made_for: the file for which the rows are prepared, if the user named that instead of `output`.

    Returns:
        The manifest, which is also written to the folder.

    Raises:
        DataError: an input is missing, damaged or malformed, or `output` holds something else or cannot be written.
        CapacityError: the disk is full, or memory is too small for the unseen buckets.
        ConfigError: there is no such source format, its settings are wrong, native code is asked for and was not
            built, the name of `output` is no text, or another preparation uses the folder.
        OtherRankError: on all ranks but the first, which raises the error itself.
    """
    team = team or alone(progress, worker_threads())
    progress = progress if team.is_first else _silent
    keep_freed_arrays()
    how = team.each_does(lambda: _Method.of(settings))
    with ExitStack() as held:
        begun = team.first_does(lambda: _begin(inputs, output, how, team, progress, held, made_for))
        if isinstance(begun, ShardManifest):
            return begun
        work, settings = begun.work, how.settings
        with ThreadPoolExecutor(team.threads) as pool:
            task = ParseTask(
                team,
                pool,
                begun.sources,
                lambda number: how.open_input(begun.sources[number]),
                begun.ranges,
                how.source_format.schema,
                work,
                settings.skip_bad_rows,
            )
            parsed = parse_input(task)
            team.first_does(lambda: _require_unchanged(work, begun.sources))
            rows = ParsedRows(work.parts_folder, parsed.parts)
            split = split_rows(settings, parsed.parts, begun.ranges, len(begun.sources))
            name = settings.source_format
            fitted = team.first_does(
                lambda: fit_rows(rows, split.train_rows, how.source_format, name, how.earlier, progress)
            )
            if fitted is not None:
                rows = rows.refined(checked_refinement(how.source_format, name, fitted))
            layout, backend = how.source_format.layout, how.backend
            given = StageInputs(team, pool, rows, split, work, layout, settings, backend, progress, how.earlier)
            manifest = write_shards(given, parsed.skipped_rows)
        if fitted is not None:
            manifest = replace(manifest, settings={**(manifest.settings or {}), FITTED: fitted})
        team.first_does(lambda: _finish(work, manifest))
    return manifest


@dataclass(frozen=True)
class _Method:
    """How rows are prepared.

    Attributes:
        settings: the settings as they are recorded; with `like`, those of the earlier rows.
        source_format: format of the rows.
        own: its own settings.
        backend: the code that counts, gives ids and compresses.
        native: whether native code reads the input, too.
        earlier: the preparation of earlier rows whose ids these get.
    """

    settings: PrepareSettings
    source_format: SourceFormat
    own: Mapping[str, Any]
    backend: Backend
    native: bool
    earlier: RecordedPreparation | None

    @classmethod
    def of(cls, settings: PrepareSettings) -> "_Method":
        """The method that the settings ask for."""
        directory = settings.like or settings.grow
        earlier = load_recorded(directory) if directory is not None else None
        settings = earlier.for_later_rows(settings) if earlier else settings
        source_format, own = load_format(settings.source_format, settings.format_options, settings.schema)
        return cls(settings, source_format, own, *choose_backend(settings.backend, source_format), earlier)

    def open_input(self, source: Path) -> TextInput | ColumnInput:
        """How a file is read."""
        of_kind = self.source_format.open_input if self.settings.labelled else self.source_format.open_unlabelled
        how = of_kind(source, self.native)
        if not parses_itself(self.source_format):
            return how
        name, schema = self.settings.source_format, self.source_format.schema
        return replace(how, parse=checked_parser(how.parse, name, schema, source))

    def state(self, sources: Sequence[Path]) -> PreparationState:
        """The state that describes a preparation of these files."""
        layout = self.source_format.layout
        choices = self.settings.choices(layout, self.own, self.earlier.digest if self.earlier else None)
        if self.earlier and self.earlier.fitted is not None:
            choices[FITTED] = self.earlier.fitted
        return PreparationState(describe_inputs(sources), choices, tuple(layout.words()), RANGE_BYTES)


@dataclass(frozen=True)
class _Begun:
    """A preparation that goes on: its files, their ranges, and the folder."""

    sources: Sequence[Path]
    ranges: Sequence[InputRange]
    work: WorkFolder


def _begin(
    inputs: Sequence[str],
    output: Path,
    how: _Method,
    team: Team,
    progress: Progress,
    held: ExitStack,
    made_for: Path | None,
) -> _Begun | ShardManifest:
    """Check the inputs and the folder, and lock it; returns the manifest instead if the folder is already finished."""
    sources = find_sources(inputs)
    if problem := not_text(str(output)):  # pyarrow takes no such name
        named = f"--output {str(output)!r}" if made_for is None else repr(str(made_for.absolute().parent))
        raise ConfigError(f"{named}: {problem}")
    if how.earlier is not None and output.exists() and output.samefile(how.earlier.directory):
        cure = "these are the earlier rows, whose ids the later ones get; choose another output folder"
        raise ConfigError(f"--output {output}: {cure}")
    if how.settings.test_files is not None and how.settings.test_files >= len(sources):
        cure = f"there are {len(sources)} input files, and one at least is for training"
        raise ConfigError(f"prepare: test-files = {how.settings.test_files}: {cure}")
    opened = [how.open_input(source) for source in sources]
    wanted = how.state(sources)
    with naming_output(output, made_for):
        if not is_finished(output) or (output / LOCK_NAME).exists():  # a killed preparation leaves its lock
            output.mkdir(parents=True, exist_ok=True)
            _take_folder(output, team, held)
        if is_finished(output):
            finished = load_finished(output, wanted)
            verify_shards(output, finished, "quick")
            check_skipped(finished.skipped_rows, how.settings.skip_bad_rows)
            remove_unfinished(output)  # left by a kill right after the manifest
            progress(f"{output} is already prepared from these inputs with these settings")
            return finished
        if note := order_note(sources):
            progress(note)
        work = replace(resume_or_start(output, wanted), made_for=made_for)
        if work.parts:
            parsed = sum(part.rows for part in work.parts)
            progress(f"going on after {parsed:,} parsed rows, {counted(len(work.shards), 'shard')}")
        ranges = plan_ranges(sources, opened, work.state.range_bytes)
        try:
            check_room(work, sources, ranges, opened.__getitem__, how.source_format.layout, how.settings, progress)
        except CapacityError:
            if not work.parts:
                remove_unfinished(output)
            raise
        return _Begun(sources, ranges, work)


def _take_folder(output: Path, team: Team, held: ExitStack) -> None:
    """Keep others out of the folder until the preparation ends."""

    def lose(why: str) -> None:
        team.end_all(f"bagpipe: error: {why}: ending, so that no two preparations write to one folder")

    lock = RunLock(output, lose, "--output")
    lock.take()
    held.callback(lock.release)


def _finish(work: WorkFolder, manifest: ShardManifest) -> None:
    """Write the manifest, and remove what only the preparation needed."""
    with work.naming_output():
        save_manifest(work.output, manifest)
        remove_unfinished(work.output)


def _silent(_: str) -> None:
    """Progress of a rank that does not speak."""


def _require_unchanged(work: WorkFolder, sources: Sequence[Path]) -> None:
    """Refuse inputs that changed: it is unknown whether their rows were read before or after that."""
    for old, source in zip(work.state.inputs, sources, strict=True):
        if not source.exists() or (old,) != describe_inputs([source]):
            told = f"changed while it was read; remove {work.output} and run bagpipe prepare again"
            raise DataError(f"{shown_names([old.file])}: {told}")
