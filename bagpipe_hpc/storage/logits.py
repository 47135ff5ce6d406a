"""Logits on their way to a file of predictions: a part of each trainer, in the order in which it computed them.

Shapes: `n` samples of a slice, `K` labels.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConsistencyError, refused

_AT_ONCE = 1 << 18
"""Samples of a part that are put in order at a time."""
_PART = "part-{:05d}.logits"


@dataclass(frozen=True)
class LogitsFolder:
    """Where the parts are.

    Attributes:
        path: the folder, which is there.
        made_for: the file of predictions; messages name it, since the folder is temporary and no user has named it.
    """

    path: Path
    made_for: Path


class LogitsWriter:
    """Writes the part of one trainer; a context manager that closes the file.

    Args:
        folder: of the parts.
        trainer: its number.
        labels: K.

    Raises:
        FileError: by every method: the system refuses the file.
    """

    def __init__(self, folder: LogitsFolder, trainer: int, labels: int) -> None:
        self._made_for = folder.made_for
        self._labels = labels
        self._dtype = _dtype(labels)
        try:
            self._file: BinaryIO = (folder.path / _PART.format(trainer)).open("wb")
        except OSError as error:
            raise refused(error, self._made_for) from error

    def __enter__(self) -> "LogitsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, rows: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        """Append the samples of a slice.

        Args:
            rows: number of each in the split, int64 `[n]`.
            logits: float32 `[n]`, or `[n, K]` for several labels.
        """
        records = np.empty(len(rows), dtype=self._dtype)
        records["row"], records["logits"] = rows, logits.reshape(len(rows), self._labels)
        try:
            self._file.write(records.tobytes())
        except OSError as error:
            raise refused(error, self._made_for) from error

    def close(self) -> None:
        """Write what is still buffered, and close the file."""
        try:
            self._file.close()
        except OSError as error:
            raise refused(error, self._made_for) from error


def ordered_logits(folder: LogitsFolder, trainers: int, rows: int, labels: int) -> NDArray[np.float32]:
    """The logits of all parts in the order of the split, in a file: memory does not grow with them.

    Args:
        folder: of the parts.
        trainers: that have written one.
        rows: of the split, 1 or more.
        labels: K.

    Returns:
        float32 `[rows, K]`, mapped from a file in the folder.

    Raises:
        ConsistencyError: a row is in no part, or in two.
        FileError: the system refuses a file.
    """
    dtype = _dtype(labels)
    found = 0
    try:
        whole = _mapped(folder.path / "ordered.logits", np.dtype(np.float32), (rows, labels))
        is_there = _mapped(folder.path / "ordered.rows", np.dtype(np.bool_), (rows,))
        for trainer in range(trainers):
            with (folder.path / _PART.format(trainer)).open("rb") as file:
                while len(records := np.frombuffer(file.read(_AT_ONCE * dtype.itemsize), dtype)):
                    whole[records["row"]] = records["logits"]
                    is_there[records["row"]] = True
                    found += len(records)
    except OSError as error:
        raise refused(error, folder.made_for) from error
    there = sum(int(is_there[first : first + _AT_ONCE].sum()) for first in range(0, rows, _AT_ONCE))
    if (found, there) != (rows, rows):
        raise ConsistencyError(
            f"{folder.made_for}: {found} predictions of {there} of {rows} rows: each must be there once"
        )
    return whole


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A new file of zeros, mapped. Its blocks are allocated: on a full disk a write to a hole would kill the process.

    Raises:
        OSError: the system refuses it.
    """
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, math.prod(shape) * dtype.itemsize)
    return np.memmap(path, dtype, "r+", shape=shape)


def _dtype(labels: int) -> np.dtype[np.void]:
    return np.dtype([("row", np.int64), ("logits", np.float32, (labels,))])
