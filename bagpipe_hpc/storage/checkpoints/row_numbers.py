"""Which rows a row file holds: runs of them, or a list. It is in the file, so that reading needs no partition.

Shapes: n rows in a file, R runs.
"""

from collections.abc import Iterator

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.groups import TableGroup
from bagpipe_hpc.rows.runs import MOST_RUNS, Overlap, RowRun, numbers_of, overlap
from bagpipe_hpc.storage.plain_hdf5 import errors_name, plain_dataset

INT64 = np.dtype("<i8")

_CHECKED_AT_ONCE = 1 << 20


class RunNumbers:
    """The rows of a file in the order of its records, as runs."""

    def __init__(self, runs: list[RowRun]) -> None:
        self._runs = runs
        self._starts = np.cumsum([0, *(run.length for run in runs)])
        self._firsts = np.array([run.first for run in runs], dtype=np.int64)
        self._lasts = np.array([run.last for run in runs], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def rows(self, first: int, last: int) -> NDArray[np.int64]:
        """The rows of records `first` up to `last`, int64 `[last - first]`."""
        return numbers_of(self._runs, first, last)

    def overlaps(self, run: RowRun) -> Iterator[tuple[int, Overlap]]:
        """What the file has of a run, piece by piece: the record at which a run of the file starts, and the overlap."""
        for number in np.flatnonzero((self._firsts <= run.last) & (self._lasts >= run.first)).tolist():
            if found := overlap(self._runs[number], run):
                yield int(self._starts[number]), found

    def count_in(self, first: int, counts: NDArray[np.bool_]) -> int:
        """Set `counts [N]` where the file holds row `first`, `first + 1`, ...; returns how many of these it holds."""
        marked = 0
        for _, found in self.overlaps(RowRun(first, 1, len(counts))):
            counts[found.firsts[1] :: found.steps[1]][: found.length] = True
            marked += found.length
        return marked

    def check(self) -> None:
        """Runs are few: they were checked when the file was opened."""


class ListedNumbers:
    """The rows of a file in ascending order, listed in the file itself.

    Args:
        listed: int64 `[n]`, mapped from the file.
        below: number of rows of all tables of this width; row numbers lie below it.
        path: the file.
    """

    def __init__(self, listed: NDArray[np.int64], below: int, path: str) -> None:
        self._listed = listed
        self._below = below
        self._path = path
        self._is_checked = False

    def __len__(self) -> int:
        return len(self._listed)

    def rows(self, first: int, last: int) -> NDArray[np.int64]:
        """The rows of records `first` up to `last`, int64 `[last - first]`."""
        return np.asarray(self._listed[first:last])

    def between(self, first: int, last: int) -> tuple[int, int]:
        """The records whose rows are `first` up to `last`."""
        self.check()
        begin, end = np.searchsorted(self._listed, [first, last])
        return int(begin), int(end)

    def count_in(self, first: int, counts: NDArray[np.bool_]) -> int:
        """Set `counts [N]` where the file holds row `first`, `first + 1`, ...; returns how many of these it holds."""
        begin, end = self.between(first, first + len(counts))
        counts[self.rows(begin, end) - first] = True
        return end - begin

    def check(self) -> None:
        """Go through the list once: with a damaged one, rows would be lost or taken for others.

        Raises:
            CheckpointError: it does not ascend, or has rows that do not exist.
        """
        if self._is_checked:
            return
        before = -1
        for first in range(0, len(self._listed), _CHECKED_AT_ONCE):
            piece = self._listed[first : first + _CHECKED_AT_ONCE]
            if piece[0] <= before or piece[-1] >= self._below or (piece[1:] <= piece[:-1]).any():
                raise CheckpointError(
                    f"{self._path}: rows are not ascending numbers from 0 to {self._below - 1}; use another checkpoint"
                )
            before = int(piece[-1])
        self._is_checked = True


def row_numbers(file: h5py.File, group: TableGroup) -> RunNumbers | ListedNumbers:
    """Which rows of the tables of one width a file holds.

    Raises:
        CheckpointError: it does not say so, or they are no rows of these tables.
    """
    total = group.total_rows
    with errors_name(file.filename):
        has_runs = "runs" in file
    if has_runs:
        return RunNumbers(_runs(file, total))
    return ListedNumbers(_listed(file, total), total, file.filename)


def _listed(file: h5py.File, most: int) -> NDArray[np.int64]:
    """The list of rows, of which there are `most` at most; left in the file."""
    dataset = plain_dataset(file, "rows")
    if dataset.ndim != 1 or dataset.size > most or dataset.dtype != INT64:
        raise CheckpointError(
            f"{file.filename}: rows is {dataset.dtype} {dataset.shape}: must be {INT64}, {most} at most; use another "
            "checkpoint"
        )
    if dataset.size == 0:
        return np.empty(0, np.int64)
    with errors_name(file.filename):
        return np.memmap(file.filename, INT64, "r", dataset.id.get_offset(), dataset.shape)


def _runs(file: h5py.File, total: int) -> list[RowRun]:
    dataset = plain_dataset(file, "runs")
    if dataset.ndim != 2 or dataset.shape[1] != 3 or dataset.shape[0] > MOST_RUNS or dataset.dtype != INT64:
        raise CheckpointError(
            f"{file.filename}: runs is {dataset.dtype} {dataset.shape}: must be {INT64} [{MOST_RUNS} at most, 3]; use "
            "another checkpoint"
        )
    with errors_name(file.filename):
        runs = [RowRun(*numbers) for numbers in dataset[:].tolist()]
    for run in runs:
        if run.first < 0 or run.stride < 1 or run.length < 1 or run.last >= total:
            raise CheckpointError(
                f"{file.filename}: runs holds {tuple(run)}: must be a first row, a stride and a number of rows among "
                f"0 to {total - 1}; use another checkpoint"
            )
    return runs
