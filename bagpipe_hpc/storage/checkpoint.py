"""Finds, checks and reads complete checkpoints."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checkpoint_manifest import (
    DENSE_FILE,
    MANIFEST_FILE,
    CheckpointManifest,
    FileInfo,
    load_checkpoint_manifest,
)
from bagpipe_hpc.storage.checkpoint_writer import CHECKPOINTS_FOLDER
from bagpipe_hpc.storage.row_file import RowFiles, open_row_files

_NAME = re.compile(r"step-(\d{8,18})", re.ASCII)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest was read and checked; its other files are looked at when they are needed.

    Attributes:
        directory: where it is.
        manifest: what it holds and where training stood.
    """

    directory: Path
    manifest: CheckpointManifest

    def verify(self, quick: bool = False) -> None:
        """Check every file against the manifest; reads each of them once, in small blocks.

        Args:
            quick: check presence and sizes only.

        Raises:
            CheckpointError: a file is absent or has another size or digest; the message names it.
        """
        for info in self.manifest.files:
            self.verify_file(info, quick)

    def verify_file(self, info: FileInfo, quick: bool = False) -> None:
        """Check one file, so that many ranks can share the work of `verify`.

        Raises:
            CheckpointError: it is absent or has another size or digest.
        """
        path = self.directory / info.file
        try:
            if not path.is_file():
                raise CheckpointError(f"{path}: is absent; restore it from a copy or use another checkpoint")
            size = path.stat().st_size
            if size != info.bytes:
                raise CheckpointError(
                    f"{path}: has {size} bytes, its manifest says {info.bytes}; restore it from a copy or use another "
                    "checkpoint"
                )
            digest = info.sha256 if quick else file_sha256(path)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
        if digest != info.sha256:
            raise CheckpointError(
                f"{path}: its SHA-256 is {digest}, its manifest says {info.sha256}: it is damaged; restore it "
                "from a copy or use another checkpoint"
            )

    @contextmanager
    def open_rows(self) -> Iterator[RowFiles]:
        """Open all row files once for many reads, by global row or for the server of any world.

        Raises:
            CheckpointError: a file is absent, damaged or does not fit the manifest.
        """
        with open_row_files(self.directory, self.manifest) as rows:
            yield rows

    def read_rows(self, first: int, last: int) -> NDArray[np.float32]:
        """Rows `first` up to `last` of all tables with their optimizer state, float32 `[last - first, D + k]`.

        Raises:
            CheckpointError: a file is absent, damaged or does not fit the manifest.
            ValueError: there are no such rows.
        """
        with self.open_rows() as rows:
            return rows.read(first, last)

    def read_dense(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What `state_dict()` of the dense model and of its optimizer gave, with all tensors on the CPU.

        Raises:
            CheckpointError: the file is absent or damaged.
        """
        # Imported here, since oracle and servers do without torch.
        from bagpipe_hpc.storage.dense_file import read_dense_file

        return read_dense_file(self.directory / DENSE_FILE)


def load_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint directory, or the newest complete checkpoint of a run's output folder.

    Raises:
        CheckpointError: there is none, or its manifest is malformed.
    """
    directory = path
    if not (path / MANIFEST_FILE).is_file() and (path / CHECKPOINTS_FOLDER).is_dir():
        found = find_checkpoints(path)
        if not found:
            raise CheckpointError(
                f"{path / CHECKPOINTS_FOLDER}: holds no complete checkpoint; name another output folder"
            )
        directory = found[-1]
    if directory.name.endswith(".partial"):
        raise CheckpointError(f"{directory}: is a checkpoint that was never completed; use an earlier one")
    return Checkpoint(directory, load_checkpoint_manifest(directory / MANIFEST_FILE))


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is meant to be a checkpoint, be it complete or not: by its name, or by its dense file."""
    return path.is_dir() and (path.name.startswith("step-") or (path / DENSE_FILE).exists())


def find_checkpoints(output: Path) -> list[Path]:
    """Directories of the complete checkpoints of a run's output folder, by step, the newest last."""
    folder = output / CHECKPOINTS_FOLDER
    if not folder.is_dir():
        return []
    names = {path: _NAME.fullmatch(path.name) for path in folder.iterdir() if (path / MANIFEST_FILE).is_file()}
    return sorted((path for path, name in names.items() if name), key=lambda path: int(path.name.removeprefix("step-")))


def remove_partial_checkpoints(output: Path) -> None:
    """Remove what killed runs began to write; the caller alone may write to the folder."""
    for directory in (output / CHECKPOINTS_FOLDER).glob("step-*.partial"):
        shutil.rmtree(directory, ignore_errors=True)


def remove_older_checkpoints(newest: Path, keep: int) -> None:
    """Keep a new checkpoint and the complete ones before it, `keep` in all; 0 keeps every one.

    A checkpoint loses its manifest first, so that one whose removal is cut short is none.
    """
    found = find_checkpoints(newest.parent.parent)
    older = found[: found.index(newest)]
    for directory in older[: len(older) - (keep - 1)] if keep else []:
        (directory / MANIFEST_FILE).unlink()
        shutil.rmtree(directory, ignore_errors=True)
