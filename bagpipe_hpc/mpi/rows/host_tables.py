"""The partitions of a host's servers, in memory that all ranks of the host share.

Legend: `P` rows of all servers of this host, `W` float32 numbers of a row's record.
"""

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.mpi.rows.row_places import rows_at
from bagpipe_hpc.rows.additions import distinct_rounds
from bagpipe_hpc.rows.huge_pages import ask_for_huge_pages

_LINE_BYTES = 64
"""Of a processor's caches; rows of that size take one each only from there on."""


class HostTables:
    """One array over the rows of all servers of this host, each server's behind those of the one before.

    It is a shared-memory window (MPI 4.1, section 12.2.3), locked once for its whole life. Loads and stores of
    different ranks are ordered by `synchronise` on the storing rank, then any message or barrier from it to the loading
    rank, then `synchronise` there: `MPI_Win_sync` is a memory barrier (MPI 4.1, sections 12.4 and 12.5.4).

    Collective over `host`: construction and `close`.

    Args:
        host: the ranks of this host; servers in the order of their numbers.
        own_rows: rows that this rank holds as a server, else 0.
        first_row: where they start in the array.
        total_rows: rows P of all ranks of `host`.
        record_width: numbers W of a record.

    Raises:
        ConfigError: this MPI keeps private copies of window memory.
    """

    def __init__(self, host: MPI.Intracomm, own_rows: int, first_row: int, total_rows: int, record_width: int) -> None:
        row_bytes = record_width * np.dtype(np.float32).itemsize
        # Shared memory starts with a page; what MPI gives a rank alone may start anywhere in a cache line (MPICH: 16
        # bytes behind its start, whatever `mpi_minimum_memory_alignment` asks for), and rows would take two.
        room = _LINE_BYTES if host.Get_size() == 1 else 0
        # Contiguous over the ranks unless an info key asks otherwise (MPI 4.1, section 12.2.3).
        self._window = MPI.Win.Allocate_shared(own_rows * row_bytes + room, 1, comm=host)
        if self._window.Get_attr(MPI.WIN_MODEL) != MPI.WIN_UNIFIED:
            raise ConfigError(
                "this MPI does not offer the unified memory model for shared windows, which embedding tables need: "
                "use an MPI with coherent shared memory"
            )
        self._row_bytes = row_bytes
        self._start_bytes = 0
        """Where the rows of a holder start in its part of the window."""
        self.record_width = record_width
        """Numbers W of a record."""
        # MPICH 5.0.2 loses 128 bytes at each accumulate of MPI_FLOAT to another rank's part of a shared window, and
        # none where two numbers are added as a complex one: the same sums, in the same time.
        self._added_number = MPI.FLOAT if record_width % 2 else MPI.C_FLOAT_COMPLEX
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self.rows = np.empty((0, record_width), dtype=np.float32)
        """Records of all servers of this host, float32 `[P, W]`."""
        if total_rows:
            lowest, _ = self._window.Shared_query(MPI.PROC_NULL)  # of the first rank that holds any
            if room:
                self._start_bytes = -lowest.address % _LINE_BYTES
            memory = MPI.memory.fromaddress(lowest.address + self._start_bytes, total_rows * row_bytes)
            self.rows = np.asarray(memory).view(np.float32).reshape(total_rows, record_width)
            ask_for_huge_pages(self.rows)
        self.own = self.rows[first_row : first_row + own_rows]
        """This server's records, float32 `[own_rows, W]`."""

    def synchronise(self) -> None:
        """Order this rank's earlier loads and stores before what it does next."""
        self._window.Sync()

    def add(self, holder: int, offsets: NDArray[np.integer[Any]], records: NDArray[np.float32]) -> None:
        """Add `records [N, W]` to the rows at `offsets [N]` of one server; a row may come several times.

        Any ranks of the host may add to the same rows at once: each number of each record counts
        (`MPI_Accumulate`; MPI 4.1, section 12.7.1), and those of one call in their order (section 12.7.2). Nobody may
        load or store these rows meanwhile, nor add to them through another window. The server need not enter MPI.

        Args:
            holder: rank of the server in `host`.
            offsets: positions in its part, integers.
            records: C-contiguous float32.
        """
        for places in distinct_rounds(offsets):
            added = records if places is None else records[places]
            number = self._added_number
            rows = rows_at(offsets if places is None else offsets[places], self._row_bytes, number)
            given = [added, added.nbytes // number.Get_size(), number]
            self._window.Accumulate(given, holder, (self._start_bytes, 1, rows), MPI.SUM)
            self._window.Flush(holder)
            rows.Free()

    def close(self) -> None:
        """Free the memory; no array on it may be used afterwards. Collective over: `host`; barrier before."""
        self.rows = self.own = np.empty((0, 0), dtype=np.float32)
        self._window.Unlock_all()
        self._window.Free()
