"""The rows of one server in one HDF5 file, in the order of the server's window.

`weights` is float32 `[n, D]`, `optimizer_state` float32 `[n, k]` (k may be 0), both contiguous and little-endian; the
attributes `server`, `servers` and `total_rows` say which rows these are. Row k of all tables lies in the file of server
k mod S at position k div S (`RoundRobinPartition`), so consecutive rows are a contiguous piece of every file.

Shapes: n rows of the server, D embedding width, k optimizer state columns, S servers.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import gcd
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.row_partition import RoundRobinPartition
from bagpipe_hpc.storage.checkpoint_manifest import CheckpointManifest, row_file_name
from bagpipe_hpc.storage.plain_hdf5 import errors_name, open_plain, plain_dataset, require_attributes

COPY_BYTES = 1 << 20
"""Records go to and from one file in pieces of about this size, which stay in a core's cache meanwhile."""
STREAM_BYTES = 8 << 20
"""Ranges of global rows in which to read a whole checkpoint; each is spread over the files of all servers."""

_FLOAT32 = np.dtype("<f4")


def stream_rows(record_columns: int) -> int:
    """Rows of a range of `STREAM_BYTES`, at least one."""
    return max(1, STREAM_BYTES // (_FLOAT32.itemsize * record_columns))


def _copy_rows(record_columns: int) -> int:
    """Rows of a piece of `COPY_BYTES`, at least one."""
    return max(1, COPY_BYTES // (_FLOAT32.itemsize * record_columns))


def write_row_file(
    path: Path, records: NDArray[np.float32], embedding_dim: int, partition: RoundRobinPartition, server: int
) -> None:
    """Write what a server holds; streams, so a view of an MPI window is never copied as a whole.

    Args:
        path: the file, replaced if it exists.
        records: float32 `[n, D + k]`, the server's rows in window order; any strides.
        embedding_dim: D, the columns of `records` that are weights.
        partition: which rows lie where.
        server: whose rows these are.

    Raises:
        ValueError: `records` has another shape or type than the partition and D call for.
    """
    rows = partition.rows_on(server)
    if records.ndim != 2 or records.shape[0] != rows or records.shape[1] < embedding_dim or records.dtype != _FLOAT32:
        raise ValueError(
            f"records of server {server} are {records.dtype} {records.shape}: "
            f"must be float32 [{rows}, {embedding_dim} or more]"
        )
    columns = records.shape[1]
    with h5py.File(path, "w", locking=False) as file:
        file.attrs.update(server=server, servers=partition.servers, total_rows=partition.total_rows)
        weights = file.create_dataset("weights", (rows, embedding_dim), _FLOAT32)
        state = file.create_dataset("optimizer_state", (rows, columns - embedding_dim), _FLOAT32)
        for first in range(0, rows, _copy_rows(columns)):
            piece = slice(first, min(first + _copy_rows(columns), rows))
            weights[piece] = records[piece, :embedding_dim]
            if columns > embedding_dim:
                state[piece] = records[piece, embedding_dim:]


class RowFiles:
    """The open row files of a checkpoint, read by global row or for a server of any world.

    Not for use by two threads at a time. Made by `open_row_files`.
    """

    def __init__(self, manifest: CheckpointManifest, datasets: list[tuple[h5py.Dataset, h5py.Dataset]]) -> None:
        """Take the `weights` and `optimizer_state` datasets of all servers, in their order."""
        self._partition = RoundRobinPartition(manifest.total_rows, manifest.servers)
        self._embedding_dim = manifest.embedding_dim
        self._columns = manifest.record_columns
        self._datasets = datasets

    def read(self, first: int, last: int) -> NDArray[np.float32]:
        """Rows `first` up to `last` of all tables with their optimizer state, float32 `[last - first, D + k]`.

        Raises:
            ValueError: the range is not one of `0 <= first <= last <= total rows`.
            CheckpointError: a file is damaged.
        """
        if not 0 <= first <= last <= self._partition.total_rows:
            raise ValueError(f"rows {first} to {last} are not among the {self._partition.total_rows} of the checkpoint")
        records = np.empty((last - first, self._columns), np.float32)
        servers = self._partition.servers
        for server in range(servers):
            self._fill(records[(server - first) % servers :: servers], server, self._rows_before(first, server), 1)
        return records

    def read_server(self, server: int, servers: int, into: NDArray[np.float32]) -> None:
        """Fill the window of one server of a world that may have another number of servers than the one that wrote.

        With the same number a server reads its own file only; else it reads the files that share rows with it.

        Args:
            server: the server whose window it is.
            servers: number S' of servers that the rows are dealt to now.
            into: float32 `[rows on the server, D + k]`, any strides; is written in pieces.

        Raises:
            ValueError: `into` has another shape than the server's rows.
            CheckpointError: a file is damaged.
        """
        rows = RoundRobinPartition(self._partition.total_rows, servers).rows_on(server)
        if into.shape != (rows, self._columns):
            raise ValueError(f"the window of server {server} is {into.shape}: must be [{rows}, {self._columns}]")
        # The rows in common with file o are those k with k = server (mod S') and k = o (mod S): every lcm(S, S')-th,
        # which are every (S' / gcd)-th row of the file and every (S / gcd)-th of the window.
        common = gcd(servers, self._partition.servers)
        file_stride, window_stride = servers // common, self._partition.servers // common
        for other in range(server % common, self._partition.servers, common):
            window_first = next(
                w for w in range(window_stride) if (w * servers + server) % self._partition.servers == other
            )
            file_first = (window_first * servers + server) // self._partition.servers
            self._fill(into[window_first::window_stride], other, file_first, file_stride)

    def _fill(self, target: NDArray[np.float32], server: int, first: int, stride: int) -> None:
        """Copy rows `first`, `first + stride`, ... of a server's file to `target`, piece by piece."""
        step = max(1, _copy_rows(self._columns) // stride)
        for begin in range(0, len(target), step):
            end = min(begin + step, len(target))
            piece = self._read_file(server, first + begin * stride, first + (end - 1) * stride + 1)
            target[begin:end] = piece[::stride]

    def _rows_before(self, row: int, server: int) -> int:
        """How many of the rows below `row` lie on a server."""
        return RoundRobinPartition(row, self._partition.servers).rows_on(server)

    def _read_file(self, server: int, first: int, last: int) -> NDArray[np.float32]:
        """Rows at positions `first` up to `last` of a server's file, float32 `[last - first, D + k]`."""
        weights, state = self._datasets[server]
        records = np.empty((last - first, self._columns), np.float32)
        with errors_name(weights.file.filename):
            records[:, : self._embedding_dim] = weights[first:last]
            if self._columns > self._embedding_dim:
                records[:, self._embedding_dim :] = state[first:last]
        return records


@contextmanager
def open_row_files(directory: Path, manifest: CheckpointManifest) -> Iterator[RowFiles]:
    """Open all row files of a checkpoint and check that they are the ones that the manifest describes.

    Raises:
        CheckpointError: a file is absent, damaged or describes other rows; the message names it.
    """
    partition = RoundRobinPartition(manifest.total_rows, manifest.servers)
    with ExitStack() as stack:
        datasets = []
        for server in range(manifest.servers):
            file = stack.enter_context(open_plain(directory / row_file_name(server, manifest.servers)))
            expected = {"server": server, "servers": manifest.servers, "total_rows": manifest.total_rows}
            require_attributes(file, expected)
            rows = partition.rows_on(server)
            weights = _matrix(file, "weights", (rows, manifest.embedding_dim))
            state = _matrix(file, "optimizer_state", (rows, manifest.row_state_columns))
            datasets.append((weights, state))
        yield RowFiles(manifest, datasets)


def _matrix(file: h5py.File, name: str, shape: tuple[int, int]) -> h5py.Dataset:
    dataset = plain_dataset(file, name)
    if dataset.shape != shape or dataset.dtype != _FLOAT32:
        raise CheckpointError(
            f"{file.filename}: {name} is {dataset.dtype} {dataset.shape}: must be float32 {shape}, as the manifest "
            "says; use another checkpoint"
        )
    return dataset
