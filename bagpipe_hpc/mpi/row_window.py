"""Embedding rows behind one-sided calls: servers expose their partition, trainers get and put rows by global number.

Legend: `N` rows of one call, `W` float32 numbers of a row's record (weights, optimizer state, version where verified).
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from types import TracebackType

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.mpi.waiting import wait_for_all
from bagpipe_hpc.role_layout import Role, RoleLayout
from bagpipe_hpc.row_partition import RowPartition

_MOST_ROWS = int(np.iinfo(np.int32).max)
"""Displacements of an indexed-block datatype are C ints."""


class RowWindow:
    """All tables in one MPI window, a partition on each server.

    The window is allocated by MPI and locked once by every rank for the whole run (MPI 4.1, sections 12.2.2 and 12.5.3;
    without `MPI_MODE_NOCHECK` the lock itself would wait for the target). Calls from the same rank must not overlap in
    time.

    Collective over `comm`: construction and `close`.

    Args:
        comm: all ranks of `layout`, in its order.
        layout: who is a server.
        partition: where each row lies.
        record_width: numbers W of a record.
        timeout_s: longest wait for one transfer; servers that are saving their rows may not answer meanwhile.

    Raises:
        CapacityError: a server would hold more rows than an MPI datatype can address.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        layout: RoleLayout,
        partition: RowPartition,
        record_width: int,
        timeout_s: float,
    ) -> None:
        most_rows = max(partition.rows_on(server) for server in range(partition.servers))
        if most_rows > _MOST_ROWS:
            raise CapacityError(
                f"{most_rows} rows on one embedding server are more than the {_MOST_ROWS} that MPI can address: "
                f"set roles.servers to at least {-(-most_rows * partition.servers // _MOST_ROWS)}"
            )
        self._layout = layout
        self._partition = partition
        self._width = record_width
        self._timeout_s = timeout_s
        self._comm = comm
        rank = comm.Get_rank()
        is_server = layout.role(rank) is Role.SERVER
        self.local_rows = partition.rows_on(layout.role_rank(rank)) if is_server else 0
        row_bytes = record_width * np.dtype(np.float32).itemsize
        self._window = MPI.Win.Allocate(self.local_rows * row_bytes, row_bytes, comm=comm)
        self._row_type = MPI.FLOAT.Create_contiguous(record_width).Commit()
        self._window.Lock_all(MPI.MODE_NOCHECK)

    @property
    def local(self) -> NDArray[np.float32]:
        """A server's own records, float32 `[rows_on, W]`, at their window positions; empty elsewhere.

        Call `synchronise` between reading or writing it and the other ranks' accesses, with a barrier beside.
        """
        memory: NDArray[np.float32] = np.asarray(self._window.tomemory()).view(np.float32)
        return memory.reshape(self.local_rows, self._width)

    def synchronise(self) -> None:
        """Make local loads and stores and remote accesses see each other (MPI 4.1, `MPI_Win_sync`)."""
        self._window.Sync()

    def get(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read records.

        Any number of ranks may read at once; nobody may write the same rows meanwhile (the plan and the movers' barrier
        see to it).

        Args:
            rows: global rows `[N]`.

        Returns:
            Their records, float32 `[N, W]`, complete.
        """
        order, parts = self._by_server(rows)
        received = np.empty((rows.size, self._width), dtype=np.float32)
        self._transfer(self._window.Rget, received, parts, f"{rows.size} embedding rows from the servers")
        records = np.empty_like(received)
        records[order] = received
        return records

    def put(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> None:
        """Write records and flush: when it returns, every record is at its server.

        The rows must differ, and no other rank may read or write them meanwhile.

        Args:
            rows: global rows `[N]`.
            records: float32 `[N, W]`.
        """
        order, parts = self._by_server(rows)
        sent = np.ascontiguousarray(records[order], dtype=np.float32)
        self._transfer(self._window.Rput, sent, parts, f"sending {rows.size} embedding rows to the servers")
        # A request's completion is local; only the flush says that the servers have the rows (MPI 4.1, section 12.5.4).
        for rank, *_ in parts:
            self._window.Flush(rank)

    def _transfer(
        self,
        start: Callable[..., MPI.Request],
        buffer: NDArray[np.float32],
        parts: list[tuple[int, int, int, NDArray[np.int32]]],
        what: str,
    ) -> None:
        """Move all records of `buffer`, one call a server, and wait until the buffer may be used again."""
        requests, types = [], []
        for rank, first, last, offsets in parts:
            target_type = self._row_type.Create_indexed_block(1, offsets)  # type: ignore[arg-type] # a buffer, as it is
            types.append(target_type.Commit())
            origin = [buffer[first:last], last - first, self._row_type]
            requests.append(start(origin, rank, (0, 1, target_type)))
        wait_for_all(requests, what, self._timeout_s)
        for target_type in types:
            target_type.Free()

    def _by_server(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[tuple[int, int, int, NDArray[np.int32]]]]:
        """Order rows by server: the order, and of each server in it: rank, range in the order, window offsets."""
        owners = self._partition.owner(rows)
        order = np.argsort(owners, kind="stable")
        offsets = self._partition.offset(rows)[order].astype(np.int32)
        counts = np.bincount(owners, minlength=self._partition.servers)
        bounds = np.concatenate(([0], np.cumsum(counts))).tolist()
        return order, list(self._server_parts(bounds, offsets))

    def _server_parts(
        self, bounds: list[int], offsets: NDArray[np.int32]
    ) -> Iterator[tuple[int, int, int, NDArray[np.int32]]]:
        for server, (first, last) in enumerate(pairwise(bounds)):
            if last > first:
                yield self._layout.world_rank(Role.SERVER, server), first, last, offsets[first:last]

    def close(self) -> None:
        """End the access epoch and free the window. Collective over: `comm`; a barrier must have come before."""
        self._window.Unlock_all()
        self._row_type.Free()
        self._window.Free()

    def __enter__(self) -> "RowWindow":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # after an error the other ranks do not come to a collective call: the job is aborted
            self.close()
