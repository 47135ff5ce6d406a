"""Checks that the files of a checkpoint hold finite numbers, without torch and in small pieces.

A run writes no other numbers (`step/divergence.py`). But a checkpoint may come from elsewhere, and a run that goes on
from NaN trains NaN.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.manifest import DENSE_FILE, CheckpointManifest
from bagpipe_hpc.storage.checkpoints.row_numbers import row_numbers
from bagpipe_hpc.storage.hdf5_attributes import plain_attribute
from bagpipe_hpc.storage.plain_hdf5 import errors_name, open_plain, plain_dataset

_PIECE = 1 << 18
_BFLOAT16_EXPONENT = 0x7F80


def require_finite(directory: Path, manifest: CheckpointManifest, info: FileInfo) -> None:
    """Look at every number of one file of a checkpoint.

    Args:
        directory: of the checkpoint.
        manifest: its manifest.
        info: the file.

    Raises:
        CheckpointError: one is NaN or infinite, or the file is damaged; the message names what it belongs to.
    """
    path = directory / info.file
    with open_plain(path) as file:
        if info.file == DENSE_FILE:
            _check_dense(file, path)
            return
        _, group = manifest.row_files()[info.file]
        for name in ("weights", "optimizer_state"):
            dataset = plain_dataset(file, name)
            if dataset.dtype != np.float32 or dataset.ndim != 2:
                raise CheckpointError(
                    f"{path}: {name} is {dataset.dtype} {list(dataset.shape)} instead of float32 of two dimensions; "
                    "use another checkpoint"
                )
            for first, piece in _pieces(dataset, path):
                is_finite = np.isfinite(piece)
                if not is_finite.all():
                    place = first + int(np.argmin(is_finite.all(axis=1)))
                    [row] = row_numbers(file, group).rows(place, place + 1).tolist()
                    raise _error(path, f"{name} of {group.row_name(row)}")


def _check_dense(file: h5py.File, path: Path) -> None:
    names: list[str] = []
    with errors_name(path):
        file.visititems(lambda name, member: names.append(name) if isinstance(member, h5py.Dataset) else None)
    for name in names:
        dataset = plain_dataset(file, name)
        with errors_name(path):
            is_bfloat16 = dataset.dtype == np.int16 and plain_attribute(dataset, "dtype") == "bfloat16"
        if dataset.dtype.kind != "f" and not is_bfloat16:
            continue
        for _, piece in _pieces(dataset, path):
            is_finite = (
                np.bitwise_and(piece, _BFLOAT16_EXPONENT) != _BFLOAT16_EXPONENT if is_bfloat16 else np.isfinite(piece)
            )
            if not is_finite.all():
                raise _error(path, name)


def _pieces(dataset: h5py.Dataset, path: Path) -> Iterator[tuple[int, NDArray[Any]]]:
    """The first row of each piece, and the piece, of a dataset of any number of dimensions."""
    if dataset.size == 0:
        return
    step = max(1, _PIECE * len(dataset) // dataset.size) if dataset.shape else 1
    for first in range(0, len(dataset) if dataset.shape else 1, step):
        with errors_name(path):
            yield first, np.asarray(dataset[first : first + step] if dataset.shape else dataset[()])


def _error(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: {what} holds NaN or infinity: the model had diverged; use a checkpoint from before that"
    )
