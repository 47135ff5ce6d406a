"""The rows of one server in one HDF5 file, in the order of the server's window: all, or those of an increment.

`weights` is float32 `[n, D]`, `optimizer_state` float32 `[n, k]` (k may be 0), both contiguous and little-endian; the
attributes `server`, `servers` and `total_rows` say which rows these are. Row k of all tables lies in the file of server
k mod S at position k div S (`RoundRobinPartition`), so consecutive rows are a contiguous piece of every file that holds
all rows. The file of an increment holds some of them, and in `positions`, int64 `[n]`, ascending, which.

Shapes: n rows in the file, D embedding width, k optimizer state columns, S servers.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.storage.hdf5_output import create_hdf5

COPY_BYTES = 1 << 20
"""Records go to and from one file in pieces of about this size, which stay in a core's cache meanwhile."""

FLOAT32 = np.dtype("<f4")
INT64 = np.dtype("<i8")
"""What the file holds, whatever the machine's byte order."""


def copy_rows(record_columns: int) -> int:
    """Rows of a piece of `COPY_BYTES`, at least one."""
    return max(1, COPY_BYTES // (FLOAT32.itemsize * record_columns))


class SelectedRows:
    """Some rows of a window, gathered where they are read: `rows[first:last]` is float32 `[last - first, W]`.

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

    def __getitem__(self, piece: slice) -> NDArray[np.float32]:
        return self._records[self._positions[piece]]


def write_row_file(
    path: Path,
    records: NDArray[np.float32] | SelectedRows,
    embedding_dim: int,
    partition: RoundRobinPartition,
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
    with create_hdf5(path) as file:
        file.attrs.update(server=server, servers=partition.servers, total_rows=partition.total_rows)
        if positions is not None:
            file.create_dataset("positions", data=positions, dtype=INT64)
        weights = file.create_dataset("weights", (rows, embedding_dim), FLOAT32)
        state = file.create_dataset("optimizer_state", (rows, columns - embedding_dim), FLOAT32)
        for first in range(0, rows, copy_rows(columns)):
            piece = slice(first, min(first + copy_rows(columns), rows))
            records_of_piece = records[piece]
            weights[piece] = records_of_piece[:, :embedding_dim]
            if columns > embedding_dim:
                state[piece] = records_of_piece[:, embedding_dim:]
