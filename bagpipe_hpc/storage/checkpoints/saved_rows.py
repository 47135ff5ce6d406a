"""The rows that a checkpoint holds, read from its row files and, of an increment, from those that it builds on.

Shapes: n rows in a file, D embedding width, k optimizer state columns, S servers that wrote.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import gcd
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest, row_file_name
from bagpipe_hpc.storage.checkpoints.row_file import FLOAT32, INT64, copy_rows
from bagpipe_hpc.storage.plain_hdf5 import errors_name, open_plain, plain_dataset, require_attributes

STREAM_BYTES = 8 << 20
"""Ranges of global rows in which to read a whole checkpoint; each is spread over the files of all servers."""

_CHECKED_AT_ONCE = 1 << 20


def stream_rows(record_columns: int) -> int:
    """Rows of a range of `STREAM_BYTES`, at least one."""
    return max(1, STREAM_BYTES // (FLOAT32.itemsize * record_columns))


class SavedRows:
    """The rows of a checkpoint, read by global row or for a server of any world.

    Not for use by two threads at a time. Made by `open_saved_rows`.
    """

    def __init__(self, layers: Sequence["_Layer"]) -> None:
        """Take the layers of the checkpoint: all rows, then each increment in its order."""
        self._layers = layers
        self._total_rows = layers[0].total_rows
        self._columns = layers[0].columns

    def read(self, first: int, last: int) -> NDArray[np.float32]:
        """Rows `first` up to `last` of all tables with their optimizer state, float32 `[last - first, D + k]`.

        Raises:
            ValueError: the range is not one of `0 <= first <= last <= total rows`.
            CheckpointError: a file is damaged.
        """
        if not 0 <= first <= last <= self._total_rows:
            raise ValueError(f"rows {first} to {last} are not among the {self._total_rows} of the checkpoint")
        records = np.empty((last - first, self._columns), np.float32)
        for layer in self._layers:
            layer.read(first, records)
        return records

    def check_positions(self, part: int, parts: int) -> None:
        """Check which rows the files of increments hold, of every `parts`-th file from `part` on, before any is read.

        Raises:
            CheckpointError: a file is damaged.
        """
        for layer in self._layers:
            layer.check_positions(part, parts)

    def read_server(self, server: int, servers: int, into: NDArray[np.float32]) -> None:
        """Fill the window of one server of a world that may have another number of servers than the one that wrote.

        With the same number a server reads its own files only; else it reads the files that share rows with it.

        Args:
            server: the server whose window it is.
            servers: number S' of servers that the rows are dealt to now.
            into: float32 `[rows on the server, D + k]`, any strides; is written in pieces.

        Raises:
            ValueError: `into` has another shape than the server's rows.
            CheckpointError: a file is damaged.
        """
        rows = RoundRobinPartition(self._total_rows, servers).rows_on(server)
        if into.shape != (rows, self._columns):
            raise ValueError(f"the window of server {server} is {into.shape}: must be [{rows}, {self._columns}]")
        for layer in self._layers:
            layer.read_server(server, servers, into)


class _Layer:
    """The row files of one checkpoint, without those that it builds on.

    Args:
        manifest: its manifest.
        files: of each server.
    """

    def __init__(self, manifest: CheckpointManifest, files: Sequence["_WholeFile | _PartFile"]) -> None:
        self.total_rows = manifest.total_rows
        self.columns = manifest.record_columns
        self._servers = manifest.servers
        self._files = files

    def check_positions(self, part: int, parts: int) -> None:
        """As `SavedRows.check_positions`, of this layer's files."""
        for file in self._files[part::parts]:
            if isinstance(file, _PartFile):
                file.check_positions()

    def read(self, first: int, records: NDArray[np.float32]) -> None:
        """Lay the rows from `first` on that the layer holds over `records [N, D + k]`."""
        for server, file in enumerate(self._files):
            # Every S-th record, from the first that the server holds.
            held = records[(server - first) % self._servers :: self._servers]
            file.read(RoundRobinPartition(first, self._servers).rows_on(server), 1, held)

    def read_server(self, server: int, servers: int, into: NDArray[np.float32]) -> None:
        """Lay the rows of a server of a world of S' `servers` that the layer holds over its window.

        The rows in common with file o are those k with k = server (mod S') and k = o (mod S): every lcm(S, S')-th,
        which are every (S' / gcd)-th row of the file and every (S / gcd)-th of the window.
        """
        common = gcd(servers, self._servers)
        file_stride, window_stride = servers // common, self._servers // common
        for other in range(server % common, self._servers, common):
            window_first = next(w for w in range(window_stride) if (w * servers + server) % self._servers == other)
            file_first = (window_first * servers + server) // self._servers
            self._files[other].read(file_first, file_stride, into[window_first::window_stride])


class _WholeFile:
    """A row file that holds all rows of its server: `weights [n, D]` and `optimizer_state [n, k]`."""

    def __init__(self, weights: h5py.Dataset, state: h5py.Dataset) -> None:
        self._datasets = weights, state
        self._columns = slice(0, weights.shape[1]), slice(weights.shape[1], weights.shape[1] + state.shape[1])
        rows = copy_rows(self._columns[1].stop)
        # Of one piece, used again for the next: fresh memory would cost as much as reading.
        self._pieces = [np.empty((rows, dataset.shape[1]), np.float32) for dataset in self._datasets]

    def read(self, first: int, stride: int, target: NDArray[np.float32]) -> None:
        """Copy the rows at positions `first`, `first + stride`, ... to `target [N, D + k]`, piece by piece."""
        step = max(1, copy_rows(target.shape[1]) // stride)
        for begin in range(0, len(target), step):
            end = min(begin + step, len(target))
            for columns, piece in self.pieces(first + begin * stride, first + (end - 1) * stride + 1):
                target[begin:end, columns] = piece[::stride]

    def pieces(self, first: int, last: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """The records `first` up to `last` of the file in two parts: their columns, and float32 `[last - first, ...]`.

        At most `copy_rows` of them; each part is there until the next call.
        """
        for number, (dataset, columns) in enumerate(zip(self._datasets, self._columns, strict=True)):
            if dataset.shape[1]:
                piece = self._pieces[number][: last - first]
                with errors_name(dataset.file.filename):
                    dataset.read_direct(piece, np.s_[first:last])
                yield columns, piece


class _PartFile:
    """A row file of an increment: it holds the rows at `positions`, int64 `[n]`, ascending, a map of the file."""

    def __init__(self, records: _WholeFile, positions: NDArray[np.int64], rows: int, path: str) -> None:
        self._records = records
        self._positions = positions
        self._rows = rows
        self._path = path
        self._is_checked = False

    def read(self, first: int, stride: int, target: NDArray[np.float32]) -> None:
        """As `_WholeFile.read`, but only what the file holds; the rest of `target` stays as it is."""
        self.check_positions()
        begin, end = np.searchsorted(self._positions, [first, first + len(target) * stride])
        step = copy_rows(target.shape[1])
        for place in range(int(begin), int(end), step):
            past = min(place + step, int(end))
            ahead, rest = np.divmod(self._positions[place:past] - first, stride)
            for columns, piece in self._records.pieces(place, past):
                target[ahead[rest == 0], columns] = piece[rest == 0]

    def check_positions(self) -> None:
        """Go once through the positions: those of a damaged file would lose rows, or reach others."""
        if self._is_checked:
            return
        before = -1
        for first in range(0, len(self._positions), _CHECKED_AT_ONCE):
            piece = self._positions[first : first + _CHECKED_AT_ONCE]
            if piece[0] <= before or piece[-1] >= self._rows or (piece[1:] <= piece[:-1]).any():
                raise CheckpointError(
                    f"{self._path}: positions are not ascending numbers from 0 to {self._rows - 1}; use another "
                    "checkpoint"
                )
            before = int(piece[-1])
        self._is_checked = True


@contextmanager
def open_saved_rows(layers: Sequence[tuple[Path, CheckpointManifest]]) -> Iterator[SavedRows]:
    """Open all row files of a checkpoint and check that they are the ones that the manifests describe.

    Args:
        layers: directory and manifest of the checkpoint with all rows, then of each increment in its order.

    Raises:
        CheckpointError: a file is absent, damaged or describes other rows; the message names it.
    """
    with ExitStack() as stack:
        yield SavedRows([_open_layer(directory, manifest, stack) for directory, manifest in layers])


def _open_layer(directory: Path, manifest: CheckpointManifest, stack: ExitStack) -> _Layer:
    partition = RoundRobinPartition(manifest.total_rows, manifest.servers)
    files: list[_WholeFile | _PartFile] = []
    for server in range(manifest.servers):
        file = stack.enter_context(open_plain(directory / row_file_name(server, manifest.servers)))
        expected = {"server": server, "servers": manifest.servers, "total_rows": manifest.total_rows}
        require_attributes(file, expected)
        rows = partition.rows_on(server)
        positions = _positions(file, rows) if manifest.base else None
        held = rows if positions is None else len(positions)
        weights = _dataset(file, "weights", (held, manifest.embedding_dim), FLOAT32)
        state = _dataset(file, "optimizer_state", (held, manifest.row_state_columns), FLOAT32)
        records = _WholeFile(weights, state)
        files.append(records if positions is None else _PartFile(records, positions, rows, file.filename))
    return _Layer(manifest, files)


def _positions(file: h5py.File, rows: int) -> NDArray[np.int64]:
    """The positions of an increment's rows, of which there are `rows` at most; left in the file."""
    dataset = plain_dataset(file, "positions")
    held = min(dataset.size, rows)
    _dataset(file, "positions", (held,), INT64)
    if held == 0:
        return np.empty(0, np.int64)
    with errors_name(file.filename):
        return np.memmap(file.filename, INT64, "r", dataset.id.get_offset(), (held,))


def _dataset(file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> h5py.Dataset:
    dataset = plain_dataset(file, name)
    if dataset.shape != shape or dataset.dtype != dtype:
        raise CheckpointError(
            f"{file.filename}: {name} is {dataset.dtype} {dataset.shape}: must be {dtype} {shape}, as the manifest "
            "says; use another checkpoint"
        )
    return dataset
