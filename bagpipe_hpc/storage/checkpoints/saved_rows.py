"""Rows of the tables of one width, read from a checkpoint's files and, of an increment, from those that it builds on.

Each file says which rows it holds (`row_numbers`), so it does not matter what had placed them.

Shapes: n rows in a file, D width of the tables, k optimizer state columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cluster.open_files import allow_open_files
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.groups import TableGroup
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.rows.runs import RowRun, runs_of
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.storage.checkpoints.row_file import FLOAT32, copy_rows
from bagpipe_hpc.storage.checkpoints.row_numbers import ListedNumbers, RunNumbers, row_numbers
from bagpipe_hpc.storage.plain_hdf5 import errors_name, open_plain, plain_dataset, require_attributes

STREAM_BYTES = 8 << 20
"""Size of the ranges of global rows in which to read a whole checkpoint; each may be spread over all servers' files."""

_COUNTED_AT_ONCE = 1 << 20


def stream_rows(record_columns: int) -> int:
    """Rows of a range of `STREAM_BYTES`, at least one."""
    return max(1, STREAM_BYTES // (FLOAT32.itemsize * record_columns))


class SavedRows:
    """The rows of a checkpoint's tables of one width, read by number or for a server of any world.

    Row numbers run through these tables alone.

    Not for use by two threads at a time. Made by `open_saved_rows`.
    """

    def __init__(self, layers: Sequence["_Layer"]) -> None:
        """Take the layers of the checkpoint: all rows, then each increment in its order."""
        self._layers = layers
        self._total_rows = layers[0].total_rows
        self._columns = layers[0].columns

    def read(self, first: int, last: int) -> NDArray[np.float32]:
        """Rows `first` up to `last` of the tables with their optimizer state, float32 `[last - first, D + k]`.

        Raises:
            ValueError: the range is not one of `0 <= first <= last <= total rows`.
            CheckpointError: a file is damaged.
        """
        if not 0 <= first <= last <= self._total_rows:
            raise ValueError(f"rows {first} to {last} are not among the {self._total_rows} of these tables")
        records = np.empty((last - first, self._columns), np.float32)
        if first < last:
            self._layers[0].require_all(first, last)
            for layer in self._layers:
                layer.read(RowRun(first, 1, last - first), records)
        return records

    def check_rows(self, part: int, parts: int) -> None:
        """Check which rows the files hold, before any is read. `parts` callers share the work; this is number `part`.

        Raises:
            CheckpointError: a file is damaged, or a row is in none of the files or in two.
        """
        for layer in self._layers:
            layer.check_numbers(part, parts)
        bounds = [self._total_rows * number // parts for number in (part, part + 1)]
        self._layers[0].require_all(*bounds)

    def read_server(self, partition: RowPartition, server: int, into: NDArray[np.float32] | DiskRows) -> None:
        """Fill the window of one server, whatever partition and number of servers wrote the checkpoint.

        Where the window's rows make few runs, a server reads only those files that hold some of them. Otherwise it goes
        through the rows of every file, and reads the pieces that hold some of its own.

        Args:
            partition: of these tables in this world.
            server: the server whose window it is.
            into: float32 `[rows on the server, D + k]`, any strides; is written in pieces.

        Raises:
            ValueError: `into` has another shape than the server's rows.
            CheckpointError: a file is damaged.
        """
        rows = partition.rows_on(server)
        if into.shape != (rows, self._columns):
            raise ValueError(f"the window of server {server} is {into.shape}: must be [{rows}, {self._columns}]")
        runs = runs_of(partition, server)
        for layer in self._layers:
            read = layer.read_own(partition, server, into) if runs is None else layer.read_runs(runs, into)
            if layer is self._layers[0] and read != rows:
                raise CheckpointError(
                    f"{layer.directory}: has {read} of the {rows} rows of server {server}; use another checkpoint"
                )


class _Layer:
    """The row files of one width of a checkpoint, without those that it builds on.

    Args:
        directory: of the checkpoint.
        group: the tables.
        columns: numbers of a row with its optimizer state.
        files: of each server.
    """

    def __init__(
        self, directory: Path, group: TableGroup, columns: int, files: Sequence["_RunFile | _ListedFile"]
    ) -> None:
        self.directory = directory
        self.total_rows = group.total_rows
        self.columns = columns
        self._group = group
        self._files = files

    def check_numbers(self, part: int, parts: int) -> None:
        """Check the list of rows of every `parts`-th file, from number `part` on."""
        for file in self._files[part::parts]:
            file.numbers.check()

    def require_all(self, first: int, last: int) -> None:
        """Check that the files hold each of the rows `first` up to `last` once.

        Raises:
            CheckpointError: they do not.
        """
        for begin in range(first, last, _COUNTED_AT_ONCE):
            is_held = np.zeros(min(_COUNTED_AT_ONCE, last - begin), np.bool_)
            held = sum(file.numbers.count_in(begin, is_held) for file in self._files)
            if held != len(is_held) or not is_held.all():
                row = self._group.row_name(begin + int(np.argmin(is_held)))
                what = f"{row} is in no row file" if not is_held.all() else "a row is in two row files"
                raise CheckpointError(f"{self.directory}: {what}; use another checkpoint")

    def read(self, run: RowRun, target: NDArray[np.float32] | DiskRows) -> int:
        """Copy the rows of a run that the layer holds over `target [rows of the run, D + k]`; returns their number."""
        return sum(file.read(run, target) for file in self._files)

    def read_runs(self, runs: Sequence[RowRun], into: NDArray[np.float32] | DiskRows) -> int:
        """Copy the rows of all runs, one after the other, over `into`; returns how many of them the layer holds."""
        first = read = 0
        for run in runs:
            read += self.read(run, into[first : first + run.length])
            first += run.length
        return read

    def read_own(self, partition: RowPartition, server: int, into: NDArray[np.float32] | DiskRows) -> int:
        """Copy the rows of a server over its window, wherever they are in the files; returns their number."""
        return sum(file.read_own(partition, server, into) for file in self._files)


class _Records:
    """The records of a row file: `weights [n, D]` and, where it is read, `optimizer_state [n, k]`."""

    def __init__(self, *parts: h5py.Dataset) -> None:
        self._datasets = parts
        ends = np.cumsum([part.shape[1] for part in parts]).tolist()
        self._columns = [slice(end - part.shape[1], end) for part, end in zip(parts, ends, strict=True)]
        self.most = copy_rows(ends[-1])
        # A buffer for a piece, used again for the next one: fresh memory would cost as much as reading.
        self._pieces = [np.empty((self.most, dataset.shape[1]), np.float32) for dataset in self._datasets]

    def read(self, first: int, stride: int, target: NDArray[np.float32] | DiskRows) -> None:
        """Copy the records `first`, `first + stride`, ... to `target [N, D + k]`, piece by piece."""
        step = max(1, copy_rows(target.shape[1]) // stride)
        for begin in range(0, len(target), step):
            end = min(begin + step, len(target))
            for columns, piece in self.pieces(first + begin * stride, first + (end - 1) * stride + 1):
                target[begin:end, columns] = piece[::stride]

    def pieces(self, first: int, last: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """The records `first` up to `last` of the file in their parts: columns, and float32 `[last - first, ...]`.

        There may be `most` of them; what is given is valid until the next call.
        """
        for number, (dataset, columns) in enumerate(zip(self._datasets, self._columns, strict=True)):
            if dataset.shape[1]:
                piece = self._pieces[number][: last - first]
                with errors_name(dataset.file.filename):
                    dataset.read_direct(piece, np.s_[first:last])
                yield columns, piece


class _RowFile:
    """A row file.

    Args:
        numbers: which rows it holds.
        records: what it holds of them.
    """

    numbers: RunNumbers | ListedNumbers

    def __init__(self, records: _Records) -> None:
        self._records = records

    def read_own(self, partition: RowPartition, server: int, into: NDArray[np.float32] | DiskRows) -> int:
        """Copy the rows of a server to their places in its window; returns how many the file holds."""
        self.numbers.check()
        read = 0
        for first in range(0, len(self.numbers), self._records.most):
            last = min(first + self._records.most, len(self.numbers))
            rows = self.numbers.rows(first, last)
            is_own = partition.owner(rows) == server
            if not is_own.any():
                continue
            places = partition.offset(rows[is_own])
            read += len(places)
            for columns, piece in self._records.pieces(first, last):
                into[places, columns] = piece[is_own]
        return read


class _RunFile(_RowFile):
    """A row file whose rows are runs."""

    def __init__(self, numbers: RunNumbers, records: _Records) -> None:
        super().__init__(records)
        self.numbers: RunNumbers = numbers

    def read(self, run: RowRun, target: NDArray[np.float32] | DiskRows) -> int:
        """Copy the rows of a run that the file holds to their places in `target`; returns their number."""
        read = 0
        for start, found in self.numbers.overlaps(run):
            places = target[found.firsts[1] :: found.steps[1]][: found.length]
            self._records.read(start + found.firsts[0], found.steps[0], places)
            read += found.length
        return read


class _ListedFile(_RowFile):
    """A row file whose rows are listed, in ascending order."""

    def __init__(self, numbers: ListedNumbers, records: _Records) -> None:
        super().__init__(records)
        self.numbers: ListedNumbers = numbers

    def read(self, run: RowRun, target: NDArray[np.float32] | DiskRows) -> int:
        """Copy the rows of a run that the file holds to their places in `target`; returns their number.

        What lies at other places stays as it is.
        """
        begin, end = self.numbers.between(run.first, run.last + 1)
        read = 0
        for first in range(begin, end, self._records.most):
            last = min(first + self._records.most, end)
            places, rest = np.divmod(self.numbers.rows(first, last) - run.first, run.stride)
            is_own = rest == 0
            if not is_own.any():
                continue
            read += int(is_own.sum())
            for columns, piece in self._records.pieces(first, last):
                target[places[is_own], columns] = piece[is_own]
        return read


@contextmanager
def open_saved_rows(
    layers: Sequence[tuple[Path, CheckpointManifest]], group: int = 0, *, weights_only: bool = False
) -> Iterator[SavedRows]:
    """Open all row files of one width and check that they are the ones that the manifests describe.

    Args:
        layers: directory and manifest of the checkpoint with all rows, then of each increment in its order.
        group: which of `CheckpointManifest.groups`, the same in all layers.
        weights_only: read rows without their optimizer state: k is 0 then.

    Raises:
        CheckpointError: a file is absent, damaged or describes other rows; the message names it.
        ValueError: there is no such group.
    """
    if not 0 <= group < len(layers[0][1].groups):
        raise ValueError(f"group {group} is not among the {len(layers[0][1].groups)} widths of the checkpoint's tables")
    allow_open_files()  # one or two for each server and layer
    with ExitStack() as stack:
        yield SavedRows(
            [
                _open_layer(directory, manifest, manifest.groups[group], stack, weights_only=weights_only)
                for directory, manifest in layers
            ]
        )


def _open_layer(
    directory: Path, manifest: CheckpointManifest, group: TableGroup, stack: ExitStack, *, weights_only: bool
) -> _Layer:
    files: list[_RunFile | _ListedFile] = []
    for server in range(manifest.servers):
        file = stack.enter_context(open_plain(directory / manifest.row_file(server, group)))
        expected = {"server": server, "servers": manifest.servers, "total_rows": group.total_rows}
        require_attributes(file, expected)
        numbers = row_numbers(file, group)
        weights = _dataset(file, "weights", (len(numbers), group.width))
        state = _dataset(file, "optimizer_state", (len(numbers), manifest.state_columns(group.width)))
        records = _Records(weights) if weights_only else _Records(weights, state)
        files.append(_RunFile(numbers, records) if isinstance(numbers, RunNumbers) else _ListedFile(numbers, records))
    return _Layer(directory, group, group.width if weights_only else manifest.record_columns(group.width), files)


def _dataset(file: h5py.File, name: str, shape: tuple[int, ...]) -> h5py.Dataset:
    dataset = plain_dataset(file, name)
    if dataset.shape != shape or dataset.dtype != FLOAT32:
        raise CheckpointError(
            f"{file.filename}: {name} is {dataset.dtype} {dataset.shape}: must be {FLOAT32} {shape}, as the manifest "
            "says; use another checkpoint"
        )
    return dataset
