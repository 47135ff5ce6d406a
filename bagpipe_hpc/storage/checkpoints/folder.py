"""The checkpoints of a run's output folder: which there are, and how old ones are removed."""

import re
import shutil
from collections.abc import Iterator, Sequence
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
        shutil.rmtree(directory, ignore_errors=True)


def remove_older_checkpoints(newest: Path, keep: int) -> None:
    """Keep a new checkpoint and the complete ones before it, `keep` in all; 0 keeps every one.

    The best one stays (`best.py`), and those that a kept one builds on.

    Raises:
        CheckpointError: the file that names the best one is malformed.
    """
    if not keep:
        return
    found = find_checkpoints(newest.parent.parent)
    upto = found[: found.index(newest) + 1]
    best = read_best(newest.parent)
    chosen = upto[-keep:] + [path for path in upto if best is not None and checkpoint_step(path) == best.step]
    needed: set[Path] = set()
    for kept in reversed(chosen):  # the newest of all before those that its chain has, so that this is read once
        for directory in _with_bases(kept):
            if directory in needed:
                break
            needed.add(directory)
    remove_checkpoints([directory for directory in upto if directory not in needed])


def remove_checkpoints(directories: Sequence[Path]) -> None:
    """Remove complete checkpoints, given by step, so that a removal that is cut short leaves whole ones.

    The newest first, as older ones may be what it builds on. Each loses its manifest first, without which it is none.
    """
    for directory in reversed(directories):
        (directory / MANIFEST_FILE).unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def remove_increments_of(base: Path) -> None:
    """Remove the complete checkpoints that build on one which is about to be replaced."""
    found = find_checkpoints(base.parent.parent)
    later = found[found.index(base) + 1 :] if base in found else []
    remove_checkpoints([directory for directory in later if base in _with_bases(directory)])


def _with_bases(directory: Path) -> Iterator[Path]:
    """A checkpoint and those that it builds on, as far as they are there; reads a manifest for each next one."""
    found: set[Path] = set()
    below = directory
    try:
        while below not in found:  # it is where one was put under the name of another
            found.add(below)
            yield below
            if (base := load_checkpoint_manifest(below / MANIFEST_FILE).base) is None:
                break
            below = directory.with_name(checkpoint_name(base.step))
    except CheckpointError:
        pass  # whoever wants to read it is told
