"""Opens, checks and reads a complete checkpoint."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.folder import (
    CHECKPOINTS_FOLDER,
    checkpoint_name,
    checkpoint_step,
    find_checkpoints,
)
from bagpipe_hpc.storage.checkpoints.manifest import (
    DENSE_FILE,
    MANIFEST_FILE,
    CheckpointManifest,
    load_checkpoint_manifest,
)
from bagpipe_hpc.storage.checkpoints.saved_rows import SavedRows, open_saved_rows


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest was read and checked; its other files are looked at when they are needed.

    Attributes:
        directory: where it is.
        manifest: what it holds and where training stood.
    """

    directory: Path
    manifest: CheckpointManifest

    def layers(self) -> list["Checkpoint"]:
        """The checkpoints that the rows lie in: one with all of them, then its increments up to and with this one.

        Raises:
            CheckpointError: one is absent, incomplete or another than the one that was built on.
        """
        chain = [self]  # steps fall from one to the next, so this ends
        while (base := chain[-1].manifest.base) is not None:
            upper, directory = chain[-1], self._beside(checkpoint_name(base.step))
            path = directory / MANIFEST_FILE
            if not path.is_file():
                raise CheckpointError(
                    f"{upper.directory}: holds only the rows that were updated since {directory}, which is absent; "
                    "restore that from a copy or use another checkpoint"
                )
            if file_sha256(path) != base.manifest_sha256:
                raise CheckpointError(
                    f"{upper.directory}: was built on another checkpoint than the one that is {directory} now; use "
                    "that or an earlier one"
                )
            chain.append(_checkpoint_in(directory))
            _require_same_rows(upper, chain[-1])
        return chain[::-1]

    def _beside(self, name: str) -> Path:
        """A checkpoint of the same folder: beside the name by which this one was opened, or behind that link."""
        real = self.directory.resolve().with_name(name)
        if self.directory.name in ("", ".."):  # the folder where the user is, or the one above
            return real
        named = self.directory.with_name(name)
        return real if (real / MANIFEST_FILE).is_file() and not (named / MANIFEST_FILE).is_file() else named

    @property
    def output(self) -> Path:
        """The output folder of the run that it was written to, unless somebody moved it."""
        named = self.directory.absolute()
        return (named if named.parent.name == CHECKPOINTS_FOLDER else named.resolve()).parent.parent

    def files(self) -> list[tuple["Checkpoint", FileInfo]]:
        """All files that the checkpoint consists of, each with the layer that it belongs to, in a fixed order.

        Raises:
            CheckpointError: a layer is missing.
        """
        return [
            (layer, info)
            for layer in self.layers()
            for info in sorted(layer.manifest.files, key=lambda info: info.file)
            if layer is self or info.file != DENSE_FILE
        ]

    def verify(self, quick: bool = False) -> None:
        """Check every file against its manifest; reads each of them once, in small blocks.

        Args:
            quick: check presence and sizes only.

        Raises:
            CheckpointError: a file is absent or has another size or digest; the message names it.
        """
        for layer, info in self.files():
            layer.verify_file(info, quick)

    def verify_file(self, info: FileInfo, quick: bool = False) -> None:
        """Check one file of this very layer, so that many ranks can share the work of `verify`.

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
    def open_rows(self, group: int = 0, *, weights_only: bool = False) -> Iterator[SavedRows]:
        """Open all row files of one width once for many reads, by row number or for the server of any world.

        Args:
            group: which of `manifest.groups`, the tables of one width; row numbers run through these tables alone.
            weights_only: read rows without their optimizer state, as if there were none.

        Raises:
            CheckpointError: a file is absent, damaged or does not fit the manifest.
            ValueError: there is no such group.
        """
        layers = [(layer.directory, layer.manifest) for layer in self.layers()]
        with open_saved_rows(layers, group, weights_only=weights_only) as rows:
            yield rows

    def read_rows(self, first: int, last: int, group: int = 0) -> NDArray[np.float32]:
        """Rows `first` up to `last` of the tables of one width with their optimizer state.

        Args:
            first: a row's number, which runs through these tables alone.
            last: one more than the last row's number.
            group: which of `manifest.groups`.

        Returns:
            float32 `[last - first, D + k]`.

        Raises:
            CheckpointError: a file is absent, damaged or does not fit the manifest.
            ValueError: there are no such rows, or no such group.
        """
        with self.open_rows(group) as rows:
            return rows.read(first, last)

    def read_dense(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What `state_dict()` of the dense model and of its optimizer gave, with all tensors on the CPU.

        Raises:
            CheckpointError: the file is absent or damaged.
        """
        # Imported here, since oracle and servers do without torch.
        from bagpipe_hpc.storage.checkpoints.dense_file import read_dense_file

        return read_dense_file(self.directory / DENSE_FILE)

    def outline_dense(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """As `read_dense`, with tensors on torch's `meta` device, which have shapes and types but no values.

        Raises:
            CheckpointError: the file is absent or damaged.
        """
        from bagpipe_hpc.storage.checkpoints.dense_file import outline_dense_file

        return outline_dense_file(self.directory / DENSE_FILE)


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
    return _checkpoint_in(directory)


def _checkpoint_in(directory: Path) -> Checkpoint:
    """The checkpoint whose manifest lies in a folder; one that is named after a step must be of that step."""
    manifest = load_checkpoint_manifest(directory / MANIFEST_FILE)
    step = checkpoint_step(directory.absolute())
    if step not in (None, manifest.step):
        raise CheckpointError(
            f"{directory / MANIFEST_FILE}: step = {manifest.step}: its folder is that of step {step}; give the folder "
            "its name again, or use another checkpoint"
        )
    return Checkpoint(directory, manifest)


def _require_same_rows(upper: Checkpoint, lower: Checkpoint) -> None:
    """Check that a checkpoint and the one that it builds on have the same rows, in the same order and format."""
    names = ("table_rows", "embedding_dim", "widths", "row_optimizer", "row_state_layout", "seed")
    for name in names:
        above, below = getattr(upper.manifest, name), getattr(lower.manifest, name)
        if above != below:
            raise CheckpointError(
                f"{upper.directory}: {name} = {above!r:.100}, and {below!r:.100} in {lower.directory}, on which it is "
                "built; use another checkpoint"
            )
