"""A window of rows on a few ranks, with every way that rows can take between them."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.config.sections.execution import TRANSFER_WAYS
from bagpipe_hpc.kernels.block_file import block_files
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import Polls, serve_until_barrier, wait_for_barrier
from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.disk.layout import BlockLayout
from bagpipe_hpc.rows.disk.store import DiskStore
from bagpipe_hpc.rows.partition import RoundRobinPartition

TIMEOUT_S = 30.0
ONE_SERVER = RoleLayout(servers=1, trainers=2)
TWO_SERVERS = RoleLayout(servers=2, trainers=1)
ONE_HOST = (0, 0, 0, 0)
ROUTES = {
    "one server, loads": RowRoutes.choose(ONE_SERVER, ONE_HOST, "loads"),
    "one server, transfers": RowRoutes.choose(ONE_SERVER, ONE_HOST, "transfers"),
    "one server, a trainer elsewhere": RowRoutes.choose(ONE_SERVER, (0, 0, 0, 3), "auto"),
    "two servers, loads": RowRoutes.choose(TWO_SERVERS, ONE_HOST, "loads"),
    "two servers, transfers": RowRoutes.choose(TWO_SERVERS, ONE_HOST, "transfers"),
    "two servers, one elsewhere": RowRoutes.choose(TWO_SERVERS, (0, 1, 0, 0), "auto"),
    "one server, on disk": RowRoutes.choose(ONE_SERVER, ONE_HOST, "auto", in_memory=False),
    "two servers, on disk": RowRoutes.choose(TWO_SERVERS, (0, 1, 0, 0), "auto", in_memory=False),
}
"""Every way that rows can take; the ranks of this one machine are dealt out to hosts that do not exist."""
SLOW = [pytest.mark.slow]
IN_TEST_ALL = {"two servers, loads": SLOW, "two servers, on disk": SLOW}
"""Marks of those that `make test` leaves out: of two servers it takes the ways by which rows of memory go over MPI."""
all_ways = pytest.mark.parametrize(
    ("routes", "transfers"),
    [
        pytest.param(routes, transfers, id=f"{name}, {transfers}", marks=IN_TEST_ALL.get(name, []))
        for name, routes in ROUTES.items()
        for transfers in (TRANSFER_WAYS if routes.any_far and routes.in_memory else ["messages"])
    ],
)
far_ways = pytest.mark.parametrize("transfers", TRANSFER_WAYS)


class Ranks:
    """This rank's role, and a window on a table of random records that every rank knows."""

    def __init__(self, comm: MPI.Intracomm, routes: RowRoutes, transfers: str, rows: int, width: int) -> None:
        layout = routes.layout
        self.comm = comm
        self.trainers = layout.trainers
        self.role = layout.role(comm.Get_rank())
        self.role_rank = layout.role_rank(comm.Get_rank())
        self.partition = RoundRobinPartition(rows, layout.servers)
        self.store = None
        if self.role is Role.SERVER and not routes.in_memory:
            layout = BlockLayout.of(self.partition.rows_on(self.role_rank), width, 512)
            memory_bytes = max(layout.least_bytes, layout.file_bytes // 4)
            where = tempfile.gettempdir(), block_files("auto")
            self.store = DiskStore(layout.rows, width, memory_bytes, *where, may_be_memory=True)
        self.window = RowWindow(comm, routes, self.partition, width, TIMEOUT_S, transfers, store=self.store)
        self.table = np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)
        if self.role is Role.SERVER:
            self.records[:] = self.table[self.rows_here]
        self.window.synchronise()
        self.meet()

    @property
    def records(self) -> np.ndarray | DiskRows:
        """This server's records, to be set."""
        return self.window.local if self.store is None else DiskRows(self.store)

    def read_records(self) -> np.ndarray:
        """This server's records."""
        return self.window.local if self.store is None else self.store.read(np.arange(self.window.local_rows))

    @property
    def rows_here(self) -> np.ndarray:
        """Global rows of this server, at their window positions."""
        return self.partition.rows_of(self.role_rank, 0, self.window.local_rows)

    def meet(self) -> None:
        """A barrier of all ranks; servers serve until it opens."""
        if self.role is Role.SERVER:
            serve_until_barrier(self.comm, self.window.answer, Polls(100e-6))
        else:
            wait_for_barrier(self.comm, "the others", TIMEOUT_S)

    def on_trainers(self, action: Callable[[], None]) -> None:
        """Run `action` on every trainer while the others serve or wait."""
        if self.role is Role.TRAINER:
            action()
        self.meet()

    def check_servers(self) -> None:
        """Every server must hold the table's records."""
        self.window.synchronise()
        if self.role is Role.SERVER:
            np.testing.assert_array_equal(self.read_records(), self.table[self.rows_here])
        self.meet()


@contextmanager
def ranks_of(routes: RowRoutes, transfers: str = "messages", rows: int = 61, width: int = 5) -> Iterator[Ranks]:
    comm = MPI.COMM_WORLD.Dup()
    ranks = Ranks(comm, routes, transfers, rows, width)
    with ranks.window:
        yield ranks
        ranks.meet()
    if ranks.store is not None:
        ranks.store.close()
    comm.Free()
