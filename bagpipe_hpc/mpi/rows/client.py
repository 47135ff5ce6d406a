"""The row client: a trainer asks far servers for rows by messages, with offsets; rows come and go in large pieces.

A server gathers and scatters rows itself (`rows/copies.py`), which is faster than any MPI library packs single ones,
and the link carries nothing but long messages. `mpi.rows.server` is the other end.

A get is a message of int32 offsets `[N]` with tag GET, answered by the records in pieces with tag ROWS. A put is a
message of offsets with tag PUT and the records in pieces with tag ROWS, answered by an empty message with tag DONE once
they are in place. An add is as a put, with tag ADD; the server adds the records to the rows. Pieces and answers of
several calls come in the order of the calls. Offsets with tag AHEAD_GET or AHEAD_PUT announce what will be got and put,
and are not answered.

Legend: `N` rows of one call, `W` float32 numbers of a row's record.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.transfer import RowTransfer
from bagpipe_hpc.rows.store import Use

TAG_GET = 1
TAG_PUT = 2
TAG_ROWS = 3
TAG_DONE = 4
TAG_ADD = 5
TAG_AHEAD_GET = 6
TAG_AHEAD_PUT = 7

_AHEAD_TAGS = {Use.GET: TAG_AHEAD_GET, Use.PUT: TAG_AHEAD_PUT}

_PIECES = 4
"""Of a call that is neither short nor long, so that the server gathers one while the link carries another; more cost
more than they hide."""
_SHORTEST_PIECE_BYTES, _LONGEST_PIECE_BYTES = 1 << 18, 1 << 20
"""A piece is long enough for a link's full rate, and a server does not work long at one for one trainer."""


def pieces(rows: int, record_width: int) -> Iterator[slice]:
    """The rows of each piece of a call, the same on both ends."""
    row_bytes = record_width * np.dtype(np.float32).itemsize
    shortest, longest = _SHORTEST_PIECE_BYTES // row_bytes, _LONGEST_PIECE_BYTES // row_bytes
    piece_rows = max(1, min(max(-(-rows // _PIECES), shortest), longest))
    for first in range(0, rows, piece_rows):
        yield slice(first, min(first + piece_rows, rows))


class RowClient:
    """Asks servers for rows.

    Any gets, and any puts or any adds, may be under way at a server; not puts beside adds, whose pieces could be mixed
    up.

    Args:
        comm: servers and trainers, and whoever else is among them, for these messages alone.
        rank_of_server: rank of each server in `comm`.
    """

    most_at_once = 2
    """A server gathers or takes rows of the second while those of the first are on the link."""

    def __init__(self, comm: MPI.Intracomm, rank_of_server: list[int]) -> None:
        self._comm = comm
        self._rank_of_server = rank_of_server
        self._announced: deque[tuple[MPI.Request, NDArray[np.int32]]] = deque()

    def announce(self, server: int, use: Use, offsets: NDArray[np.int32]) -> None:
        """Tell a server at which `offsets [N]` the next get or put will be that has not been announced."""
        while self._announced and self._announced[0][0].Test():
            self._announced.popleft()
        self._announced.append((self._comm.Isend(offsets, self._rank_of_server[server], _AHEAD_TAGS[use]), offsets))

    def start_get(self, server: int, offsets: NDArray[np.int32], into: NDArray[np.float32]) -> RowTransfer:
        """Start to read the rows at `offsets [N]` of a server; `into [N, W]` holds them once the transfer is complete.

        Any number of ranks may read at once; nobody may write the same rows meanwhile.
        """
        rank = self._rank_of_server[server]
        requests = [self._comm.Irecv(into[piece], rank, TAG_ROWS) for piece in pieces(*into.shape)]
        requests.append(self._comm.Isend(offsets, rank, TAG_GET))
        return RowTransfer(requests)

    def start_put(self, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> RowTransfer:
        """Start to write `records [N, W]` to distinct `offsets [N]` of a server, which has them once it is complete.

        No other rank may read or write these rows meanwhile.
        """
        return self._start_write(TAG_PUT, server, offsets, records)

    def start_add(self, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]) -> RowTransfer:
        """Start to add `records [N, W]` to the rows at `offsets [N]` of a server; a row may come several times.

        Other ranks may add to the same rows, but not read or write them, meanwhile. All is added once the transfer is
        complete: records of one call in their order, those of several calls in the order in which pieces arrive.
        """
        return self._start_write(TAG_ADD, server, offsets, records)

    def _start_write(
        self, tag: int, server: int, offsets: NDArray[np.int32], records: NDArray[np.float32]
    ) -> RowTransfer:
        rank = self._rank_of_server[server]
        requests = [self._comm.Irecv(bytearray(), rank, TAG_DONE), self._comm.Isend(offsets, rank, tag)]
        requests += [self._comm.Isend(records[piece], rank, TAG_ROWS) for piece in pieces(*records.shape)]
        return RowTransfer(requests)

    def close(self) -> None:
        """Free the communicator. Collective over: `comm`; servers must have answered until now."""
        MPI.Request.Waitall([request for request, _ in self._announced])
        self._comm.Free()
