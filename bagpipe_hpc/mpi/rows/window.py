"""Embedding rows at the servers: trainers get, put and add them by global number, each by the shortest way.

Legend: `N` rows of one call, `W` float32 numbers of a row's record (weights, optimizer state, version where verified).
"""

from collections.abc import Callable
from functools import partial
from types import TracebackType

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.mpi.rows.client import RowClient
from bagpipe_hpc.mpi.rows.host_tables import HostTables
from bagpipe_hpc.mpi.rows.one_sided import OneSidedRows
from bagpipe_hpc.mpi.rows.server import RowServer, SharedRows
from bagpipe_hpc.mpi.rows.transfer import PendingRows, RowTransfer, RowTransfers
from bagpipe_hpc.mpi.start.roll_call import call_roll
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import Answered
from bagpipe_hpc.rows.copies import NumpyRowCopies, RowCopies
from bagpipe_hpc.rows.partition import RowPartition, most_rows, total_rows
from bagpipe_hpc.rows.server_parts import RowSorter
from bagpipe_hpc.rows.store import Places, Records, RowStore, Use
from bagpipe_hpc.terminal import counted

_MOST_ROWS = int(np.iinfo(np.int32).max)
"""Offsets travel, and displacements of a datatype are, C ints."""


def require_addressable(routes: RowRoutes, partition: RowPartition) -> None:
    """See that transfers reach every row; trainers of a server's host load and store any number of them.

    Raises:
        CapacityError: a server would hold more rows than a transfer can address.
    """
    largest = most_rows(partition)
    if largest > _MOST_ROWS and routes.any_far:
        enough = -(-total_rows(partition) // _MOST_ROWS)
        even = "" if enough > partition.servers else ", or another tables.placement, such as round_robin"
        raise CapacityError(
            f"{largest} rows on one embedding server are more than the {_MOST_ROWS} that MPI can address: "
            f"set roles.servers to at least {max(enough, partition.servers + bool(even))}{even}"
        )


class RowWindow:
    """All tables, a partition on each server.

    Rows of near servers are loaded and stored in the memory of the host (`HostTables`); those of far ones are
    transferred. One thread of a rank makes all calls; any gets of its, and any puts or any adds, may be under way at
    a time, so that both directions of a link are busy.

    What a trainer has put or added is seen by every get that begins after a barrier or message which the trainer
    entered or sent after the call was complete: puts and adds end and gets begin with `HostTables.synchronise`, and a
    transfer is complete at its server. A server that reads or writes `local` itself calls `synchronise` in between,
    with a barrier beside.

    Collective over `comm`: construction and `close`.

    Args:
        comm: all ranks of the layout, in its order.
        routes: who is a server, and which way rows take.
        partition: where each row lies.
        record_width: numbers W of a record.
        timeout_s: longest wait for one transfer (servers that are saving their rows may not answer meanwhile), and for
            the other ranks to open or close the window.
        transfers: how rows travel between far pairs, `messages` or `one_sided`.
        copies: how rows are gathered and scattered; NumPy where it is not given.
        store: a server's own rows, where `routes` say that they are not in memory; they travel by messages then.
        reads_ahead: whether trainers tell such servers what they will get and put.

    Raises:
        CapacityError: a server would hold more rows than a transfer can address.
        WaitTimeoutError: a rank did not come to open the window; where a call blocks, the job is ended instead.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        routes: RowRoutes,
        partition: RowPartition,
        record_width: int,
        timeout_s: float,
        transfers: str = "messages",
        copies: RowCopies | None = None,
        store: RowStore | None = None,
        *,
        reads_ahead: bool = True,
    ) -> None:
        require_addressable(routes, partition)
        self._copies = copies or NumpyRowCopies()
        self._width = record_width
        self._timeout_s = timeout_s
        self._total_rows = total_rows(partition)
        rank = comm.Get_rank()
        layout = routes.layout
        servers_shared = routes.servers_shared(rank) if routes.in_memory else ()
        self._sorter = RowSorter(partition, servers_shared)
        first_row, self.local_rows = 0, 0
        if layout.role(rank) is Role.SERVER:
            first_row = int(self._sorter.first_rows[layout.role_rank(rank)])
            self.local_rows = partition.rows_on(layout.role_rank(rank))
        self._comm, self._names = comm, layout.names
        self._meet("being ready to share the tables")
        # Alone, a server gets ordinary memory: most machines have huge pages there, and few in shared memory.
        sharers = routes.sharers(rank)
        self._holders = {server: sharers.index(layout.world_rank(Role.SERVER, server)) for server in servers_shared}
        """Rank of each server among those with which this rank shares rows."""
        with TimeLimit("the ranks of this host to share the memory of the tables", timeout_s):
            host = MPI.Intracomm(comm.Split(sharers[0], rank))
            shared_rows = self.local_rows if routes.in_memory else 0
            self._tables = HostTables(host, shared_rows, first_row, self._sorter.rows_here, record_width)
            host.Free()
        self.is_asked = layout.role(rank) is Role.SERVER and bool(routes.far_trainers(layout.role_rank(rank)))
        """Whether this is a server whose rows trainers reach through MPI."""
        self._near, far = routes.near_servers(rank), routes.far_servers(rank)
        # All adds to a server go through one window: those of two are not atomic together (MPI 4.1, section 12.7.1).
        by_window = transfers == "one_sided"
        self._added_here = tuple(s for s in self._near if not (by_window and routes.far_trainers(s)))
        self._any_far = bool(far)
        self._transfers: RowTransfers | None = None
        self._announces: RowClient | None = None
        self._server: RowServer | None = None
        self.answers_from_memory = self.is_asked and transfers == "messages" and routes.in_memory
        """Whether this is a server that gets messages of trainers, and has what they ask for in memory."""
        if routes.any_far:
            self._open_transfers(routes, transfers, store, reads_ahead=reads_ahead and not routes.in_memory)
        self.moved = self._sorter.moved
        """Rows that this rank has got from, put to and added at each server, int64 `[S]` each."""
        self.ways = f"rows of {counted(len(self._near), 'server')} in shared memory, of {len(far)} by {transfers}"
        """How this rank's rows travel, for the log."""

    def _open_transfers(self, routes: RowRoutes, way: str, store: RowStore | None, *, reads_ahead: bool) -> None:
        """Open the way of rows between far pairs. Collective over: `comm`."""
        layout = routes.layout
        ranks = [layout.world_rank(Role.SERVER, server) for server in range(layout.servers)]
        if way == "one_sided":
            with TimeLimit("all ranks to open the window on the tables", self._timeout_s):
                self._transfers = OneSidedRows(self._comm, self._tables.own, ranks)
            return
        with TimeLimit("all ranks to open the channel of the tables", self._timeout_s):
            messages = self._comm.Dup()
        self._transfers = client = RowClient(messages, ranks)
        self._announces = client if reads_ahead else None
        if layout.role(self._comm.Get_rank()) is Role.SERVER:
            shared = SharedRows(self._tables, self._copies, self._own_add(routes))
            self._server = RowServer(messages, store or shared)

    @property
    def local(self) -> NDArray[np.float32]:
        """A server's own records in memory, float32 `[rows_on, W]`, at their window positions; empty elsewhere.

        Call `synchronise` between reading or writing it and the other ranks' accesses, with a barrier beside.
        """
        return self._tables.own

    @property
    def host_rows(self) -> NDArray[np.float32]:
        """Records in memory that this rank shares with others or has alone, server by server, float32 `[P, W]`."""
        return self._tables.rows

    def synchronise(self) -> None:
        """Make this rank's loads and stores and those of other ranks see each other; see the class."""
        self._tables.synchronise()

    @property
    def most_at_once(self) -> int:
        """Gets, and puts, that are worth having under way at a time; those of near rows alone are over at once."""
        return RowClient.most_at_once if self._transfers is None else self._transfers.most_at_once

    @property
    def reads_ahead(self) -> bool:
        """Whether servers want to know of rows before they are got and put."""
        return self._announces is not None

    def announce(self, use: Use, rows: NDArray[np.int64]) -> None:
        """Tell servers that read ahead which rows the next gets or puts will be of.

        What is announced must come, in the order in which it was announced, though several announcements may come in
        one call. What is not announced may come at any time only if nothing is.

        Args:
            use: how they will be used.
            rows: global rows `[N]`, in the order in which they will come.

        Raises:
            ValueError: there is no such row.
        """
        if self._announces is None:
            return
        self._require_rows(rows)
        for part in self._sorter.by_server(rows, (), None).far:
            self._announces.announce(part.server, use, part.places)

    def get(self, rows: NDArray[np.int64], records: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Read records and wait for them; arguments and errors as for `start_get`.

        Args:
            rows: global rows `[N]`.
            records: where their records go; new memory if left out.

        Returns:
            The records, complete.

        Raises:
            WaitTimeoutError: a server did not answer in time.
        """
        if records is None:
            records = np.empty((rows.size, self._width), dtype=np.float32)
        self.start_get(rows, records).wait()
        return records

    def put(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> None:
        """Write records and wait until each is at its server; arguments and errors as for `start_put`.

        Raises:
            WaitTimeoutError: a server did not answer in time.
        """
        self.start_put(rows, records).wait()

    def start_get(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> PendingRows:
        """Start to read records, also while other gets are under way.

        Any number of ranks may read at once; nobody may write the same rows meanwhile (the plan and the movers' barrier
        see to it).

        Args:
            rows: global rows `[N]`.
            records: where their records go, C-contiguous float32 `[N, W]`, there once the get is complete.

        Raises:
            ValueError: there is no such row.
        """
        self._require_rows(rows)
        self._tables.synchronise()
        what = f"{rows.size} embedding rows from the servers"
        if self._transfers is None or not self._any_far:
            self._copies.gather(self._tables.rows, self._sorter.near_index(rows, "got"), records)
            return PendingRows([], _nothing, what, self._timeout_s)
        order, near, far = self._sorter.by_server(rows, self._near, "got")
        received = records if order is None else np.empty_like(records)
        under_way = [self._transfers.start_get(part.server, part.places, received[part.where]) for part in far]
        for part in near:
            self._copies.gather(self._tables.rows, part.places, received[part.where])

        def restore_order() -> None:
            if order is not None:
                self._copies.scatter(records, order, received)

        return PendingRows(under_way, restore_order, what, self._timeout_s)

    def start_put(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> PendingRows:
        """Start to write records, also while other puts are under way, but no add.

        Once the put is complete, every record is at its server. The rows must differ, also from those of other puts,
        and no other rank may read or write them meanwhile.

        Args:
            rows: global rows `[N]`.
            records: float32 `[N, W]`, left alone until the put is complete.

        Raises:
            ValueError: there is no such row, or the records do not fit the rows.
        """
        self._require_rows(rows)
        self._require_records(rows, records)
        given = np.ascontiguousarray(records)
        under_way: list[RowTransfer] = []
        if self._transfers is None or not self._any_far:
            self._copies.scatter(self._tables.rows, self._sorter.near_index(rows, "put"), given)
        else:
            order, near, far = self._sorter.by_server(rows, self._near, "put")
            sent = given
            if order is not None:
                sent = np.empty_like(given)
                self._copies.gather(given, order, sent)
            under_way = [self._transfers.start_put(part.server, part.places, sent[part.where]) for part in far]
            for part in near:
                self._copies.scatter(self._tables.rows, part.places, sent[part.where])
        what = f"the servers to take {rows.size} embedding rows"
        return PendingRows(under_way, self._tables.synchronise, what, self._timeout_s)

    def add(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> None:
        """Add records and wait until each is at its server; arguments and errors as for `start_add`.

        Raises:
            WaitTimeoutError: a server did not answer in time.
        """
        self.start_add(rows, records).wait()

    def start_add(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> PendingRows:
        """Start to add to records: once the add is complete, all its numbers are part of those at the servers.

        Every column of a record counts, the optimizer's state and the version too: give 0 for what is to stay. (Only
        -0 becomes 0 by that.) A row may come several times in a call; each of its records is added, in their order.

        Any trainers may add to the same rows at once, and nothing is lost, but nobody may get or put these rows
        meanwhile. The order in which records of several trainers are added to a row is not defined, and float32 sums
        depend on it in the last bits; where one trainer alone adds to a row between two barriers, they do not.

        Rows of near servers are added by this thread in the memory of the host, and are there when this returns.
        Other adds may be under way, but no put.

        Args:
            rows: global rows `[N]`.
            records: what to add, float32 `[N, W]`, left alone until the add is complete.

        Raises:
            ValueError: there is no such row, or the records do not fit the rows.
        """
        self._require_rows(rows)
        self._require_records(rows, records)
        order, near, far = self._sorter.by_server(rows, self._added_here, "added")
        sent = np.ascontiguousarray(records)
        if order is not None:
            sent = np.empty_like(sent)
            self._copies.gather(np.ascontiguousarray(records), order, sent)
        under_way: list[RowTransfer] = []
        if far:
            assert self._transfers is not None  # there is a way to every server
            under_way = [self._transfers.start_add(part.server, part.places, sent[part.where]) for part in far]
        for part in near:
            offsets = part.places - self._sorter.first_rows[part.server]
            self._tables.add(self._holders[part.server], offsets, sent[part.where])
        what = f"the servers to add to {rows.size} embedding rows"
        return PendingRows(under_way, self._tables.synchronise, what, self._timeout_s)

    def answer(self) -> Answered:
        """On a server: answer what far trainers ask, without waiting.

        Servers call it again and again while rows may be got and put; transfers proceed only meanwhile.

        Returns:
            What it has come to; always nothing where rows do not travel by messages.
        """
        return Answered.NOTHING if self._server is None else self._server.answer()

    def _require_rows(self, rows: NDArray[np.int64]) -> None:
        """Other numbers would reach memory that is no row."""
        if rows.size and not (0 <= (low := int(rows.min())) <= (high := int(rows.max())) < self._total_rows):
            wrong = low if low < 0 else high
            raise ValueError(f"row {wrong}: the tables have rows 0 to {self._total_rows - 1}")

    def _require_records(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> None:
        if records.shape != (rows.size, self._width) or records.dtype != np.float32:
            raise ValueError(
                f"records {records.dtype} {list(records.shape)}: must be float32 {[rows.size, self._width]}"
            )

    def _own_add(self, routes: RowRoutes) -> Callable[[Places, Records], None]:
        """How this server adds what far trainers send: alone, or beside trainers of its host that add as well."""
        layout, rank = routes.layout, self._comm.Get_rank()
        if len(routes.far_trainers(layout.role_rank(rank))) < layout.trainers:
            return partial(self._tables.add, self._holders[layout.role_rank(rank)])
        return partial(self._copies.add, self._tables.own)

    def close(self) -> None:
        """Free everything. Collective over: `comm`; a barrier must have come before.

        Raises:
            WaitTimeoutError: a rank did not come; where a call blocks, the job is ended instead.
        """
        self._meet("being done with the tables")
        with TimeLimit("all ranks to give the memory of the tables back", self._timeout_s):
            if self._transfers is not None:
                self._transfers.close()
            self._tables.close()

    def _meet(self, what: str) -> None:
        call_roll(self._comm, what, self._timeout_s, names=self._names)

    def __enter__(self) -> "RowWindow":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # after an error the other ranks do not come to a collective call: the job is aborted
            self.close()


def _nothing() -> None:
    pass
