"""The rows of one server in one HDF5 file: all of them, or those of an increment.

`weights` is float32 `[n, D]`, `optimizer_state` float32 `[n, k]` (k may be 0), both contiguous and little-endian. The
attributes `server`, `servers` and `total_rows` say whose file it is, and one dataset which rows it holds:

* `runs`, int64 `[R, 3]`: first row, stride and count of each run of global rows, in the order of the server's window;
* `rows`, int64 `[n]`: the global rows, ascending, where they make too many runs, and of an increment.

Shapes: n rows in the file, D embedding width, k optimizer state columns.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.disk.array_face import SnapshotRows
from bagpipe_hpc.rows.partition import RowPartition, total_rows
from bagpipe_hpc.rows.runs import MOST_RUNS, rows_at, runs_of
from bagpipe_hpc.storage.checkpoints.row_numbers import INT64
from bagpipe_hpc.storage.hdf5_output import create_hdf5

COPY_BYTES = 1 << 20
"""Records go to and from one file in pieces of about this size, which stay in a core's cache meanwhile."""

FLOAT32 = np.dtype("<f4")
"""What the file holds, whatever the machine's byte order."""

_SOUGHT_AT_ONCE = 1 << 20


def copy_rows(record_columns: int) -> int:
    """Rows of a piece of `COPY_BYTES`, at least one."""
    return max(1, COPY_BYTES // (FLOAT32.itemsize * record_columns))


class SelectedRows:
    """Some rows of a window, gathered where they are read: `rows[piece]` is float32 `[rows of the piece, W]`.

    Args:
        records: the window, float32 `[rows, W]`, any strides.
        positions: which of its rows, int64 `[n]`.
    """

    def __init__(self, records: NDArray[np.float32], positions: NDArray[np.int64]) -> None:
        self._records = records
        self._positions = positions
        self.shape = (len(positions), records.shape[1])
        self.ndim = 2
        self.dtype = records.dtype

    def __getitem__(self, piece: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        return self._records[self._positions[piece]]


def write_row_file(
    path: Path,
    records: NDArray[np.float32] | SelectedRows | SnapshotRows,
    embedding_dim: int,
    partition: RowPartition,
    server: int,
    positions: NDArray[np.int64] | None = None,
) -> None:
    """Write what a server holds; streams, so a view of an MPI window is never copied as a whole.

    Args:
        path: the file, replaced if it exists.
        records: float32 `[n, D + k]`, rows of the server in window order; any strides.
        embedding_dim: D, the columns of `records` that are weights.
        partition: which rows lie where.
        server: whose rows these are.
        positions: of an increment, the position of each record in the server's window, ascending; None: all rows.

    Raises:
        ValueError: `records` has another shape or type than the partition, the positions and D call for.
    """
    rows = partition.rows_on(server) if positions is None else len(positions)
    if records.ndim != 2 or records.shape[0] != rows or records.shape[1] < embedding_dim or records.dtype != FLOAT32:
        raise ValueError(
            f"records of server {server} are {records.dtype} {records.shape}: "
            f"must be float32 [{rows}, {embedding_dim} or more]"
        )
    columns = records.shape[1]
    # Three numbers a run: with more of them a list of the rows is smaller.
    runs = runs_of(partition, server, min(MOST_RUNS, max(1, rows // 3))) if positions is None else None
    with create_hdf5(path) as file:
        file.attrs.update(server=server, servers=partition.servers, total_rows=total_rows(partition))
        weights = file.create_dataset("weights", (rows, embedding_dim), FLOAT32)
        state = file.create_dataset("optimizer_state", (rows, columns - embedding_dim), FLOAT32)
        if runs is not None:
            file.create_dataset("runs", data=np.array(runs, dtype=INT64).reshape(-1, 3))
            order: Iterable[slice | NDArray[np.int64]] = _as_they_are(rows, copy_rows(columns))
        else:
            numbers = file.create_dataset("rows", (rows,), INT64)
            order = _ascending(partition, server, positions, numbers, copy_rows(columns))
        last = 0
        for piece in order:
            records_of_piece = records[piece]
            first, last = last, last + len(records_of_piece)
            weights[first:last] = records_of_piece[:, :embedding_dim]
            if columns > embedding_dim:
                state[first:last] = records_of_piece[:, embedding_dim:]


def _as_they_are(rows: int, most: int) -> Iterator[slice]:
    """All records in their order, in pieces of `most`."""
    for first in range(0, rows, most):
        yield slice(first, min(first + most, rows))


def _ascending(
    partition: RowPartition, server: int, positions: NDArray[np.int64] | None, numbers: h5py.Dataset, most: int
) -> Iterator[slice | NDArray[np.int64]]:
    """Records in the order of their rows, in pieces of `most` at most, whose rows are written to `numbers [n]`.

    Args:
        partition: which rows lie where.
        server: whose rows these are.
        positions: of each record in the server's window. The rows of some positions are sorted. None means all rows of
            the server, which are picked out of those of all servers, in order: sorting them would take memory.
        numbers: takes the rows.
        most: records of a piece.
    """
    if positions is None:
        total, last = total_rows(partition), 0
        for sought in range(0, total, _SOUGHT_AT_ONCE):
            rows = np.arange(sought, min(sought + _SOUGHT_AT_ONCE, total), dtype=np.int64)
            rows = rows[partition.owner(rows) == server]
            first, last = last, last + len(rows)
            numbers[first:last] = rows
            places = partition.offset(rows)
            yield from (places[piece] for piece in _as_they_are(len(places), most))
        return
    rows = rows_at(partition, server, positions)
    if (rows[1:] > rows[:-1]).all():
        numbers[:] = rows
        yield from _as_they_are(len(rows), most)
        return
    order = np.argsort(rows)
    numbers[:] = rows[order]
    yield from (order[piece] for piece in _as_they_are(len(order), most))
