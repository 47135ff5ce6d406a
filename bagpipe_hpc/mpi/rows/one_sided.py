"""Rows of other hosts by one-sided calls: a server exposes its partition, a trainer gets, puts and adds by offset.

Legend: `N` rows of one call, `W` float32 numbers of a row's record.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.mpi.rows.row_places import copied_number, rows_at
from bagpipe_hpc.mpi.rows.transfer import RowTransfer
from bagpipe_hpc.rows.additions import distinct_rounds


def has_unified_memory(comm: MPI.Intracomm) -> bool:
    """Whether this MPI's windows have no private copies (MPI 4.1, section 12.4). Collective over: `comm`."""
    window = MPI.Win.Create(None, comm=comm)
    model = window.Get_attr(MPI.WIN_MODEL)
    window.Free()
    return bool(model == MPI.WIN_UNIFIED)


class OneSidedRows:
    """A window over the servers' partitions.

    It is locked once by every rank for its whole life (MPI 4.1, section 12.5.3; without `MPI_MODE_NOCHECK` the lock
    itself would wait for the target). Transfers complete while the target polls MPI.

    Collective over `comm`: construction and `close`.

    Args:
        comm: servers and trainers, and whoever else is among them.
        own: this rank's records as a server, float32 `[rows, W]`; no rows elsewhere. Where other ranks of its host load
            and store the same memory, `HostTables.synchronise` and a barrier or message must lie between them and a
            transfer; in the unified memory model nothing else is needed (MPI 4.1, section 12.4).
        rank_of_server: world rank of each server.

    Raises:
        ConfigError: this MPI keeps private copies of window memory: a server would not see what was put.
    """

    most_at_once = 1
    """A put waits for all calls to its server that are under way: the flush is of every one."""

    def __init__(self, comm: MPI.Intracomm, own: NDArray[np.float32], rank_of_server: list[int]) -> None:
        self._rank_of_server = rank_of_server
        if not has_unified_memory(comm):
            raise ConfigError(
                "roles.transfers = 'one_sided': this MPI does not offer the unified memory model, so servers would not "
                "see rows that trainers put; use messages, or auto"
            )
        self._window = MPI.Win.Create(own if own.size else None, own.itemsize, comm=comm)
        self._row_bytes = own.shape[1] * own.itemsize
        self._window.Lock_all(MPI.MODE_NOCHECK)

    def start_get(self, server: int, offsets: NDArray[np.int32], into: NDArray[np.float32]) -> RowTransfer:
        """Start to read the rows at `offsets [N]` of a server; `into [N, W]` holds them once the transfer is complete.

        Any number of ranks may read at once; nobody may write the same rows meanwhile.
        """
        return self._start(self._window.Rget, server, offsets, into, copied_number(self._row_bytes))

    def start_put(self, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> RowTransfer:
        """Start to write `records [N, W]` to distinct `offsets [N]` of a server, which has them once it is finished.

        No other rank may read or write these rows meanwhile. A request's completion is local; only the flush says that
        the server has the rows (MPI 4.1, section 12.5.4).
        """
        put = self._start(self._window.Rput, server, offsets, records, copied_number(self._row_bytes))
        return self._flushed([put], server)

    def start_add(self, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> RowTransfer:
        """Start to add `records [N, W]` to the rows at `offsets [N]` of a server; a row may come several times.

        Any ranks may add to the same rows through this window at once: each number of each record counts, and those of
        one call in their order (MPI 4.1, sections 12.7.1 and 12.7.2). Nobody may read or write these rows meanwhile.
        """
        add = partial(self._window.Raccumulate, op=MPI.SUM)
        calls = [
            self._start(add, server, offsets, records, MPI.FLOAT)
            if places is None
            else self._start(add, server, offsets[places], records[places], MPI.FLOAT)
            for places in distinct_rounds(offsets)  # a target may not hold a place twice (section 12.3.4)
        ]
        return self._flushed(calls, server)

    def _flushed(self, calls: list[RowTransfer], server: int) -> RowTransfer:
        """Calls that write, as one transfer, which is finished when the server has everything."""

        def finish() -> None:
            for call in calls:
                call.finish()
            self._window.Flush(self._rank_of_server[server])

        return RowTransfer([request for call in calls for request in call.requests], finish)

    def _start(
        self,
        call: Callable[..., MPI.Request],
        server: int,
        offsets: NDArray[np.int32],
        buffer: NDArray[np.float32],
        number: MPI.Datatype,
    ) -> RowTransfer:
        # One datatype of all rows a call: a call for each row would take ten times as long.
        rows = rows_at(offsets, self._row_bytes, number)
        request = call([buffer, buffer.nbytes // number.Get_size(), number], self._rank_of_server[server], (0, 1, rows))
        return RowTransfer([request], rows.Free)

    def close(self) -> None:
        """End the access epoch and free the window. Collective over: `comm`; a barrier must have come before."""
        self._window.Unlock_all()
        self._window.Free()
