"""How far a preparation has come, as files in its folder record it: from there a killed preparation goes on.

`preparation.json` says what is prepared, and how. The folder `parsed` holds the finished parts of parsed rows, each
with a note beside it, a small JSON file that is written when the part is complete. The vocabularies and each shard have
such a note, too.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Annotated, Any, TypeVar

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write, remove_partial_files
from bagpipe_hpc.storage.checked_json import FileInfo, Must, Positive, load_json
from bagpipe_hpc.storage.output_errors import writing_to
from bagpipe_hpc.storage.run_lock import LOCK_NAME
from bagpipe_hpc.storage.shards.entries import InputInfo, ShardInfo
from bagpipe_hpc.storage.shards.manifest import MANIFEST_NAME, UNFINISHED_NAME, ShardManifest, load_manifest
from bagpipe_hpc.terminal import printable, shortened
from data_prep.parsed_rows import Part

STATE_VERSION = 4
PARTS_FOLDER = "parsed"
FITTED = "fitted"
"""The setting of a manifest that holds what the source format took from the training rows; the inputs determine it."""
_VOCABULARIES = "vocabularies"
_MOST_BYTES = 256 << 20
"""Upper limit of a file's size, that of a manifest: both may name a million malformed rows."""

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class PreparationState:
    """What is prepared.

    Attributes:
        version: version of `preparation.json` and of the notes.
        inputs: the input files, in order.
        settings: the settings that decide what the shards hold.
        layout: the description of the source format, line by line (`TextLayout.words`).
        range_bytes: bytes of a range of the input, on which the names of parts depend.
    """

    version: Annotated[int, Must(STATE_VERSION.__eq__, f"{STATE_VERSION}, which this version of bagpipe writes")] = (
        field(default=STATE_VERSION, kw_only=True)
    )
    inputs: tuple[InputInfo, ...]
    settings: dict[str, Any]
    layout: tuple[str, ...]
    range_bytes: Positive


@dataclass(frozen=True)
class WorkFolder:
    """The output folder of an unfinished preparation, and what was finished in it when this process began.

    Attributes:
        output: the folder.
        state: what is prepared.
        parts: finished parts of parsed rows, in the order of the input; those of a range have no gaps.
        vocabularies: the file of vocabularies, if it is finished.
        shards: finished shards by their names.
        made_for: the file for which the rows are prepared; None if the user named the folder itself.
    """

    output: Path
    state: PreparationState
    parts: tuple[Part, ...] = ()
    vocabularies: FileInfo | None = None
    shards: Mapping[str, ShardInfo] = field(default_factory=dict)
    made_for: Path | None = None

    def naming_output(self) -> AbstractContextManager[None]:
        """As `naming_output`, for this folder."""
        return naming_output(self.output, self.made_for)

    @property
    def parts_folder(self) -> Path:
        """The folder of parts and notes."""
        return self.output / PARTS_FOLDER

    def note_part(self, part: Part) -> None:
        """Note that a part is finished."""
        self._note(part.name, asdict(part))

    def note_vocabularies(self, info: FileInfo) -> None:
        """Note that the vocabularies are finished."""
        self._note(_VOCABULARIES, asdict(info))

    def note_shard(self, shard: ShardInfo) -> None:
        """Note that a shard is finished."""
        self._note(Path(shard.file).stem, shard.to_json())

    def _note(self, name: str, content: dict[str, Any]) -> None:
        with atomic_write(self.parts_folder / f"{name}.json") as partial:
            partial.write_text(json.dumps(content) + "\n", encoding="utf-8")


def describe_inputs(sources: Sequence[Path]) -> tuple[InputInfo, ...]:
    """Identify input files by name, size and time of the last change. A moved folder is the same input."""
    return tuple(InputInfo(source.name, source.stat().st_size, source.stat().st_mtime_ns) for source in sources)


def shown_names(names: Iterable[str]) -> str:
    """Names of input files for a message, in which nothing commands a terminal."""
    return ", ".join(printable(name, is_layout_kept=False) for name in names)


def resume_or_start(output: Path, wanted: PreparationState) -> WorkFolder:
    """The folder to work in, with an unfinished preparation or with `wanted`, newly begun.

    Args:
        output: the folder, which exists and is locked.
        wanted: what to prepare; an unfinished preparation keeps the ranges that it began with.

    Raises:
        DataError: the folder holds the preparation of other inputs or settings, or other files.
    """
    path, parts_folder = output / UNFINISHED_NAME, output / PARTS_FOLDER
    if path.is_file():
        found = _read(PreparationState, path, output)
        remove_partial_files(output)
        remove_partial_files(parts_folder)
        if any(parts_folder.glob("rows-*.json")):  # Without parts nothing is lost, so other settings are allowed.
            _refuse_other(output, "an unfinished preparation", found.inputs, found.settings, wanted)
            _refuse_other_layout(output, found.layout, wanted.layout)
            return _finished_pieces(output, found)
    elif any(map(_is_foreign, output.iterdir())):
        raise DataError(f"{output}: the folder is not empty and holds no preparation; choose another output folder")
    with atomic_write(path) as partial:  # first, so that a kill or a full disk leaves nothing that would be foreign
        partial.write_text(json.dumps(asdict(wanted), indent=1) + "\n", encoding="utf-8")
    parts_folder.mkdir(exist_ok=True)
    return WorkFolder(output, wanted)


def _is_foreign(file: Path) -> bool:
    """Whether a file of a folder without `preparation.json` is there for another reason than a preparation.

    An empty folder of parts is what earlier versions left when they were stopped in their first moment.
    """
    if file.name == PARTS_FOLDER and file.is_dir():
        return any(file.iterdir())
    return file.name != LOCK_NAME and not file.name.endswith(".partial")


def _finished_pieces(output: Path, state: PreparationState) -> WorkFolder:
    """What is finished by the notes in the folder, and exists."""
    folder = output / PARTS_FOLDER
    parts = sorted((_read(Part, path, output) for path in folder.glob("rows-*.json")), key=lambda part: part.place)
    vocabularies = [_read(FileInfo, path, output) for path in folder.glob(f"{_VOCABULARIES}.json")]
    shards = [_read(ShardInfo, path, output) for path in folder.glob("t*-*.json")]
    return WorkFolder(
        output,
        state,
        tuple(part for _, found in groupby(parts, lambda part: part.range) for part in _unbroken(found)),
        next((info for info in vocabularies if _is_whole(output, info)), None),
        {shard.file: shard for shard in shards if _is_whole(output, shard)},
    )


def _unbroken(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts of a range, in order, up to the first that is missing."""
    for number, part in enumerate(parts):
        if part.number != number:
            return
        yield part


def _read(kind: type[_Read], path: Path, output: Path) -> _Read:
    return load_json(kind, path, _MOST_BYTES, cure=f"remove {output} and run bagpipe prepare again")


def load_finished(output: Path, wanted: PreparationState) -> ShardManifest:
    """The manifest of the finished preparation in the folder.

    Raises:
        DataError: it was made from other inputs or settings.
    """
    manifest = load_manifest(output)
    _refuse_other(output, "the finished preparation", manifest.inputs, manifest.settings or {}, wanted)
    return manifest


def remove_unfinished(output: Path) -> None:
    """Remove what only an unfinished preparation needs."""
    shutil.rmtree(output / PARTS_FOLDER, ignore_errors=True)
    (output / UNFINISHED_NAME).unlink(missing_ok=True)


def _is_whole(output: Path, info: ShardInfo | FileInfo) -> bool:
    path = output / info.file
    return path.is_file() and path.stat().st_size == info.bytes


def _refuse_other(
    output: Path, what: str, inputs: Sequence[InputInfo], settings: Mapping[str, Any], wanted: PreparationState
) -> None:
    cure = f"choose another output folder, or remove {output} to start anew"
    if tuple(inputs) != wanted.inputs:
        names = sorted({source.file for source in set(inputs) ^ set(wanted.inputs)})
        difference = f"different or changed: {shown_names(names)}" if names else "in another order"
        raise DataError(f"{output}: holds {what} of other inputs ({difference}); {cure}")
    settings_asked = json.loads(json.dumps(wanted.settings))  # as they are recorded: lists for tuples
    aside = {FITTED} - settings_asked.keys()  # what is fitted follows from the rows themselves
    for name in sorted(
        (settings.keys() | settings_asked.keys()) - aside, key=lambda name: (name != "source_format", name)
    ):
        found, asked = settings.get(name), settings_asked.get(name)
        if found != asked:
            told = f"{name} = {shortened(repr(found))} instead of {shortened(repr(asked))}"
            raise DataError(f"{output}: holds {what} with {told}; {cure}")


def _refuse_other_layout(output: Path, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse to go on with rows that were parsed by another description of the format."""
    for old, new in zip_longest(found, wanted):
        if old != new:
            raise DataError(
                f"{output}: holds an unfinished preparation of a format with {old or 'no more columns'} instead of "
                f"{new or 'no more columns'}; choose another output folder, or remove {output} to start anew"
            )


def is_finished(output: Path) -> bool:
    """Whether the folder holds a finished preparation."""
    return (output / MANIFEST_NAME).is_file()


def naming_output(output: Path, made_for: Path | None = None) -> AbstractContextManager[None]:
    """Turn the system's errors about the output folder into one that names what the user has named.

    Args:
        output: the folder.
        made_for: as for `WorkFolder`.

    Raises:
        CapacityError: the disk is full.
        DataError: the system refuses something else.
    """
    again = " and run bagpipe prepare again to go on where it stopped" if made_for is None else " and start again"
    return writing_to(made_for or output, again, DataError)
