"""The checkpoints of a run's output folder: which there are, and how old ones are removed."""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checkpoints.best import read_best
from bagpipe_hpc.storage.checkpoints.manifest import DENSE_FILE, MANIFEST_FILE, load_checkpoint_manifest

CHECKPOINTS_FOLDER = "checkpoints"

REPLACED = ".replaced"
"""Ends the name of a checkpoint while another of the same step takes its place."""

_NAME = re.compile(rf"step-(\d{{8,18}})({re.escape(REPLACED)})?", re.ASCII)


def checkpoint_name(step: int) -> str:
    """Name of the directory of a step's checkpoint."""
    return f"step-{step:08d}"


def checkpoint_step(directory: Path) -> int | None:
    """The step that a directory's name says; None where it has another kind of name, such as a copy may have."""
    name = _NAME.fullmatch(directory.name)
    return int(name[1]) if name else None


def step_of(checkpoint: Path) -> int:
    """The step of one of `find_checkpoints`."""
    step = checkpoint_step(checkpoint)
    assert step is not None, "found by its name"
    return step


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is meant to be a checkpoint, be it complete or not: by its name, or by its dense file."""
    return path.is_dir() and (path.name.startswith("step-") or (path / DENSE_FILE).exists())


def find_checkpoints(output: Path) -> list[Path]:
    """Directories of the complete checkpoints of a run's output folder, by step, the newest last.

    One that was about to be replaced when the run was killed is found under its other name.
    """
    folder = output / CHECKPOINTS_FOLDER
    if not folder.is_dir():
        return []
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir(), reverse=True):  # step-N.replaced comes before step-N
        if (step := checkpoint_step(path)) is not None and (path / MANIFEST_FILE).is_file():
            found[step] = path
    return [found[step] for step in sorted(found)]


def remove_partial_checkpoints(output: Path) -> None:
    """Remove what killed runs began to write; the caller alone may write to the folder."""
    for directory in (output / CHECKPOINTS_FOLDER).glob("step-*.partial"):
        remove_folder(directory)


class KeptCheckpoints:
    """Which checkpoints of a run stay; the others are removed after each new one.

    Args:
        keep: complete ones that are kept, the new one among them; 0 keeps all.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._base_of = cache(_base_of)  # so each manifest is read once, however long a chain of increments becomes

    def remove_older(self, newest: Path) -> None:
        """Remove those before a new one that are neither kept, nor the best one (`best.py`), nor what these build on.

        Raises:
            CheckpointError: the file that names the best one is malformed.
        """
        if not self._keep:
            return
        found = find_checkpoints(newest.parent.parent)
        upto = found[: found.index(newest) + 1]
        best = read_best(newest.parent)
        best_one = [path for path in upto if best is not None and checkpoint_step(path) == best.step]
        kept = best_one + upto[-self._keep :]
        needed = {directory for one in kept for directory in _with_bases(one, self._base_of)}
        remove_checkpoints([directory for directory in upto if directory not in needed])


def remove_checkpoints(directories: Sequence[Path]) -> None:
    """Remove complete checkpoints, given by step, so that a removal that is cut short leaves whole ones.

    The newest first, as older ones may be what it builds on. Each loses its manifest first, without which it is none;
    of one that lies elsewhere, behind a link, the link alone is removed.
    """
    for directory in reversed(directories):
        if not directory.is_symlink():
            (directory / MANIFEST_FILE).unlink(missing_ok=True)
        remove_folder(directory)


def remove_folder(directory: Path) -> None:
    """Remove a folder, as far as the system lets; of a link the link alone, as somebody keeps the folder elsewhere."""
    if directory.is_symlink():
        directory.unlink()
    else:
        shutil.rmtree(directory, ignore_errors=True)


def remove_increments_of(base: Path) -> None:
    """Remove the complete checkpoints that build on one which is about to be replaced."""
    found = find_checkpoints(base.parent.parent)
    later = found[found.index(base) + 1 :] if base in found else []
    base_of = cache(_base_of)
    remove_checkpoints([directory for directory in later if base in _with_bases(directory, base_of)])


def _base_of(directory: Path) -> Path | None:
    """What a checkpoint builds on, by its manifest; None where it holds all rows.

    Raises:
        CheckpointError: the manifest is absent or malformed.
    """
    base = load_checkpoint_manifest(directory / MANIFEST_FILE).base
    return None if base is None else directory.with_name(checkpoint_name(base.step))


def _with_bases(directory: Path, base_of: Callable[[Path], Path | None]) -> Iterator[Path]:
    """A checkpoint and those that it builds on, as far as they are there."""
    found: set[Path] = set()
    below: Path | None = directory
    try:
        while below is not None and below not in found:  # one that was renamed to another's step may lead in a circle
            found.add(below)
            yield below
            below = base_of(below)
    except CheckpointError:
        pass  # reading it will say so
