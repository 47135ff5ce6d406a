"""Writes a checkpoint that is complete or absent, by as many processes as hold a part of it.

    OUTPUT/checkpoints/step-00000100.partial/     every process writes its own file here, fsynced
    OUTPUT/checkpoints/step-00000100/             the same directory, renamed once the manifest lies in it

A directory is a checkpoint once it is renamed, so a job that is killed at any moment leaves the earlier ones as they
were.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.disk.array_face import SnapshotRows
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256, fsync
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.folder import (
    CHECKPOINTS_FOLDER,
    REPLACED,
    checkpoint_name,
    remove_folder,
    remove_increments_of,
)
from bagpipe_hpc.storage.checkpoints.manifest import (
    DENSE_FILE,
    MANIFEST_FILE,
    Base,
    CheckpointManifest,
    load_checkpoint_manifest,
    row_file_name,
)
from bagpipe_hpc.storage.checkpoints.row_file import SelectedRows, write_row_file
from bagpipe_hpc.storage.output_errors import reason


def base_of(directory: Path) -> Base:
    """What the manifest of an increment says of the complete checkpoint that it builds on.

    Raises:
        CheckpointError: its manifest is absent or malformed.
    """
    path = directory / MANIFEST_FILE
    return Base(load_checkpoint_manifest(path).step, file_sha256(path))


class CheckpointWriter:
    """One process's share in writing the checkpoint of a step.

    Every process that holds a part makes its own and writes its file, in any order and at the same time. When all have
    returned, which the caller has to see to, one process gathers their `FileInfo` and calls `commit`.

    Args:
        output: the run's output folder, the same for all; it must be on a file system that all see.
        step: steps trained so far.
    """

    def __init__(self, output: Path, step: int) -> None:
        self.directory = output / CHECKPOINTS_FOLDER / checkpoint_name(step)
        """Where the checkpoint is once `commit` has returned."""
        self._partial = self.directory.with_name(self.directory.name + ".partial")
        self._step = step

    def write_rows(
        self,
        server: int,
        partition: RowPartition,
        records: NDArray[np.float32] | SelectedRows | SnapshotRows,
        embedding_dim: int,
        positions: NDArray[np.int64] | None = None,
        *,
        names_width: bool = False,
    ) -> FileInfo:
        """Write the rows of one server: all, or those of the tables of one width.

        The rows must not change meanwhile. They are copied in pieces of `row_file.COPY_BYTES`, never as a whole.

        Args:
            server: whose rows these are.
            partition: which rows of these tables lie on which server.
            records: float32 `[rows, D + state columns]` in window order, any strides: a view of the MPI window.
            embedding_dim: D, the first columns of a record, which are weights.
            positions: of an increment, where in the server's window the records lie, int64 `[rows]`, ascending; None:
                these are all rows of the server.
            names_width: the run's tables have several widths, so that the file's name says which it holds.

        Raises:
            CheckpointError: the file cannot be written, as on a full disk.
            ValueError: `records` has another shape or type.
        """
        name = row_file_name(server, partition.servers, embedding_dim if names_width else None)
        return self._write(
            name, lambda path: write_row_file(path, records, embedding_dim, partition, server, positions)
        )

    def write_dense(self, model_state: dict[str, Any], optimizer_state: dict[str, Any]) -> FileInfo:
        """Write the `state_dict()` of the dense model and of its `torch.optim` optimizer, bit for bit, unpickled.

        Raises:
            CheckpointError: the file cannot be written.
            TypeError: a state holds something that has no place in the file.
        """
        # Imported here, since embedding servers, which write rows only, do without torch.
        from bagpipe_hpc.storage.checkpoints.dense_file import write_dense_file

        return self._write(DENSE_FILE, lambda path: write_dense_file(path, model_state, optimizer_state))

    def commit(self, manifest: CheckpointManifest) -> Path:
        """Make what was written a checkpoint. One process calls it, after all others have written their files.

        An earlier checkpoint of the same step, which a resumed run has reached again, is replaced, and those that
        build on it are removed. What a killed run left in the partial directory is removed.

        Returns:
            The checkpoint's directory.

        Raises:
            CheckpointError: a file of the manifest is not there with its size, or the file system fails.
            ValueError: the manifest is of another step.
        """
        if manifest.step != self._step:
            raise ValueError(f"the manifest is of step {manifest.step}, the writer of step {self._step}")
        for info in manifest.files:
            path = self._partial / info.file
            if not path.is_file() or path.stat().st_size != info.bytes:
                raise CheckpointError(
                    f"{path}: is not there with {info.bytes} bytes, so this is no complete checkpoint; put "
                    "train.output on a file system that all ranks share"
                )
        try:
            self._remove_strays({info.file for info in manifest.files})
            with atomic_write(self._partial / MANIFEST_FILE) as path:
                path.write_text(manifest.to_json(), encoding="utf-8")
            self._rename()
        except OSError as error:
            raise self._failure(self.directory, error) from error
        return self.directory

    def _write(self, name: str, write: Callable[[Path], None]) -> FileInfo:
        path = self._partial / name
        try:
            self._partial.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as partial:
                write(partial)
            return FileInfo(name, path.stat().st_size, file_sha256(path))
        except OSError as error:
            raise self._failure(path, error) from error

    def _remove_strays(self, files: set[str]) -> None:
        """Remove what a killed run with another number of servers wrote for the same step."""
        for path in self._partial.iterdir():
            if path.name not in files:
                path.unlink()

    def _rename(self) -> None:
        replaced = self.directory.with_name(self.directory.name + REPLACED)
        if os.path.lexists(self.directory):  # else the one aside, which a killed run left, is it until the rename
            remove_folder(replaced)
            remove_increments_of(self.directory)
            self.directory.rename(replaced)
        self._partial.rename(self.directory)
        for folder in self.directory.parents[:2]:  # either may be new
            fsync(folder)
        remove_folder(replaced)

    def _failure(self, path: Path, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"{path}: cannot be written ({reason(error)}); check the free space and the permissions, or choose another "
            "train.output. Earlier checkpoints are unharmed"
        )
