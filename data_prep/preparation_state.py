"""How far a preparation has come: `preparation.json` in the output folder, from which a killed one goes on."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Annotated, Any

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write, remove_partial_files
from bagpipe_hpc.storage.checked_json import FileInfo, Must, read_json
from bagpipe_hpc.storage.shards.entries import InputInfo, ShardInfo
from bagpipe_hpc.storage.shards.manifest import MANIFEST_NAME, UNFINISHED_NAME, ShardManifest, load_manifest
from data_prep.parsed_rows import Part
from data_prep.text_blocks import TextPosition

STATE_VERSION = 3
PARTS_FOLDER = "parsed"
_Version = Annotated[int, Must(STATE_VERSION.__eq__, f"{STATE_VERSION}: another version of bagpipe wrote it")]


@dataclass(frozen=True)
class PreparationState:
    """What is finished.

    Attributes:
        version: of `preparation.json`.
        inputs: the input files, in order.
        settings: the settings that decide what the shards hold.
        layout: the description of the source format, line by line (`TextLayout.words`).
        parts: files of parsed rows, in the order of the input.
        parsed: whether the parts hold the whole input.
        vocabularies: the file of finished vocabularies.
        shards: finished shards, training ones first, in order.
    """

    version: Annotated[int, Must(STATE_VERSION.__eq__, f"{STATE_VERSION}, which this version of bagpipe writes")] = (
        field(default=STATE_VERSION, kw_only=True)
    )
    inputs: tuple[InputInfo, ...]
    settings: dict[str, Any]
    layout: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    parsed: bool = False
    vocabularies: FileInfo | None = None
    shards: tuple[ShardInfo, ...] = ()

    @property
    def position(self) -> TextPosition:
        """Place in the input after the last finished part."""
        return self.parts[-1].end if self.parts else TextPosition()

    @property
    def skipped_rows(self) -> tuple[str, ...]:
        """Malformed rows so far, as `FILE:LINE: REASON`."""
        return tuple(row for part in self.parts for row in part.skipped_rows)

    def with_part(self, part: Part) -> "PreparationState":
        """The state after one more part."""
        return replace(self, parts=(*self.parts, part))

    def with_shard(self, shard: ShardInfo) -> "PreparationState":
        """The state after one more shard."""
        return replace(self, shards=(*self.shards, shard))

    def save(self, output: Path) -> None:
        """Write `preparation.json`, whole or not at all."""
        with atomic_write(output / UNFINISHED_NAME) as partial:
            partial.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def describe_inputs(sources: Sequence[Path]) -> tuple[InputInfo, ...]:
    """What tells input files from others: name, size and time of the last change. A moved folder is the same input."""
    return tuple(InputInfo(source.name, source.stat().st_size, source.stat().st_mtime_ns) for source in sources)


def resume_or_start(output: Path, wanted: PreparationState) -> PreparationState:
    """The state to go on from: that of an unfinished preparation in the folder, or `wanted`, which is new.

    Raises:
        DataError: the folder holds the preparation of other inputs or settings, or other files.
    """
    path = output / UNFINISHED_NAME
    if path.is_file():
        cure = f"remove {output} and run bagpipe prepare again"
        found = read_json(PreparationState, path.read_text(encoding="utf-8"), path, cure=cure)
        remove_partial_files(output)
        remove_partial_files(output / PARTS_FOLDER)
        if found.parts:  # Without one there is nothing to lose, so other settings are no mistake.
            _refuse_other(output, "an unfinished preparation", found.inputs, found.settings, wanted)
            _refuse_other_layout(output, found.layout, wanted.layout)
            vocabularies = found.vocabularies
            return replace(
                found,
                vocabularies=vocabularies if vocabularies and _is_whole(output, vocabularies) else None,
                shards=tuple(takewhile(lambda shard: _is_whole(output, shard), found.shards)),
            )
    elif output.is_dir() and any(file for file in output.iterdir() if not file.name.endswith(".partial")):
        raise DataError(f"{output}: the folder is not empty and holds no preparation; choose another output folder")
    (output / PARTS_FOLDER).mkdir(parents=True, exist_ok=True)
    wanted.save(output)
    return wanted


def load_finished(output: Path, wanted: PreparationState) -> ShardManifest:
    """The manifest of the finished preparation in the folder.

    Raises:
        DataError: it is that of other inputs or settings.
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
        difference = f"different or changed: {', '.join(names)}" if names else "in another order"
        raise DataError(f"{output}: holds {what} of other inputs ({difference}); {cure}")
    for name in sorted(settings.keys() | wanted.settings.keys(), key=lambda name: (name != "source_format", name)):
        found, asked = settings.get(name), wanted.settings.get(name)
        if found != asked:
            raise DataError(f"{output}: holds {what} with {name} = {found!r} instead of {asked!r}; {cure}")


def _refuse_other_layout(output: Path, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Rows that were parsed by another description do not go with those that are to come."""
    for old, new in zip_longest(found, wanted):
        if old != new:
            raise DataError(
                f"{output}: holds an unfinished preparation of a format with {old or 'no more columns'} instead of "
                f"{new or 'no more columns'}; choose another output folder, or remove {output} to start anew"
            )


def is_finished(output: Path) -> bool:
    """Whether the folder holds a finished preparation."""
    return (output / MANIFEST_NAME).is_file()
