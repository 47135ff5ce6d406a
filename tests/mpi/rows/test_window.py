"""Rows behind one-sided calls are a table: what trainers put and add, every trainer gets and the servers hold."""

import mmap
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.config.sections.execution import TRANSFER_WAYS
from bagpipe_hpc.errors import CapacityError, WaitTimeoutError
from bagpipe_hpc.kernels.block_file import block_files
from bagpipe_hpc.mpi.rows import client, server
from bagpipe_hpc.mpi.rows.server import SharedRows
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import Polls, serve_until_barrier, wait_for_barrier, wait_until
from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.disk.layout import BlockLayout
from bagpipe_hpc.rows.disk.store import DiskStore
from bagpipe_hpc.rows.huge_pages import ask_for_huge_pages
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.store import Use
from tests.eventually import eventually
from tests.memory_flags import asked_bytes

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
widths = pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 17])
far_ways = pytest.mark.parametrize("transfers", TRANSFER_WAYS)
SHARING = [(way, kind) for way in ("loads", "transfers", "a trainer elsewhere") for kind in TRANSFER_WAYS]
SHARING.append(("on disk", "messages"))
"""How two trainers reach the rows of one server."""


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


@pytest.mark.mpi(min_size=4)
@all_ways
@widths
def test_random_puts_and_gets_are_those_of_a_table(routes, transfers, width):
    """In every round each trainer puts some of its rows; then all get any rows, in any order, some twice.

    Windows count what a trainer has moved at each server.
    """
    with ranks_of(routes, transfers, width=width) as ranks:
        rng = np.random.default_rng(1)
        moved: dict[str, list[np.ndarray]] = {"got": [], "put": [], "added": []}
        for _ in range(12):
            shares = np.array_split(rng.permutation(61)[: rng.integers(0, 62)], ranks.trainers)
            records = [rng.standard_normal((len(share), width)).astype(np.float32) for share in shares]
            wanted = rng.integers(0, 61, rng.integers(0, 90))

            def put(shares=shares, records=records) -> None:
                ranks.window.put(shares[ranks.role_rank], records[ranks.role_rank])
                moved["put"].append(shares[ranks.role_rank])

            def get(wanted=wanted) -> None:
                np.testing.assert_array_equal(ranks.window.get(wanted), ranks.table[wanted])
                moved["got"].append(wanted)

            ranks.on_trainers(put)
            for share, values in zip(shares, records, strict=True):
                ranks.table[share] = values
            ranks.on_trainers(get)
        for what, rows in moved.items():
            owners = ranks.partition.owner(np.concatenate([np.empty(0, np.int64), *rows]))
            by_server = np.bincount(owners, minlength=ranks.partition.servers)
            np.testing.assert_array_equal(ranks.window.moved[what], by_server)
        ranks.check_servers()


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(("way", "transfers"), SHARING)
def test_a_put_is_there_when_it_returns(way, transfers):
    """Two trainers pass a row back and forth; the message that hands it over overtakes no write."""
    with ranks_of(ROUTES[f"one server, {way}"], transfers) as ranks:
        row = np.asarray([7])

        def pass_on() -> None:
            own, other = (ranks.comm.Get_rank(), 5 - ranks.comm.Get_rank())  # world ranks 2 and 3
            for turn in range(100):
                if turn % 2 == ranks.role_rank:
                    ranks.window.put(row, np.full((1, 5), turn, dtype=np.float32))
                    ranks.comm.send(turn, dest=other)
                else:
                    assert ranks.comm.recv(source=other) == turn
                    assert ranks.window.get(row).tolist() == [[turn] * 5], own

        ranks.on_trainers(pass_on)
        ranks.table[7] = 99
        ranks.check_servers()


@pytest.mark.mpi(min_size=4)
@all_ways
@widths
def test_no_addition_is_lost(routes, transfers, width):
    """All trainers add to the same few rows at once, some rows several times a call: whole numbers, so in any order."""
    with ranks_of(routes, transfers, width=width) as ranks:
        rng = np.random.default_rng(4)
        counts = [50, 0, 1, 90]
        added = [
            [(rng.integers(0, 40, count), rng.integers(-9, 10, (count, width)).astype("f4")) for count in counts]
            for _ in range(ranks.trainers)
        ]
        if ranks.role is Role.SERVER:
            ranks.records[:] = np.rint(ranks.read_records())
        ranks.table[:] = np.rint(ranks.table)
        ranks.window.synchronise()
        ranks.meet()

        def add() -> None:
            for rows, records in added[ranks.role_rank] * 5:
                ranks.window.add(rows, records)

        ranks.on_trainers(add)
        for rows, records in [call for calls in added for call in calls] * 5:
            np.add.at(ranks.table, rows, records)
        ranks.on_trainers(lambda: np.testing.assert_array_equal(ranks.window.get(np.arange(61)), ranks.table))
        ranks.check_servers()


@pytest.mark.mpi(min_size=4)
@all_ways
def test_one_adder_of_a_row_gives_exact_bits(routes, transfers):
    """Trainers add to rows of their own, each row several times in a call: in the order of the call."""
    with ranks_of(routes, transfers) as ranks:
        rng = np.random.default_rng(5)
        shares = np.array_split(rng.permutation(61), ranks.trainers)
        rows = [rng.choice(share, 200) for share in shares]
        records = [(rng.standard_normal((200, 5)) * 10.0 ** rng.integers(-4, 5, (200, 1))).astype("f4") for _ in shares]
        ranks.on_trainers(lambda: ranks.window.add(rows[ranks.role_rank], records[ranks.role_rank]))
        for share_rows, share_records in zip(rows, records, strict=True):
            for row, record in zip(share_rows, share_records, strict=True):
                ranks.table[row] += record
        ranks.on_trainers(lambda: np.testing.assert_array_equal(ranks.window.get(np.arange(61)), ranks.table))
        ranks.check_servers()


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(("way", "transfers"), SHARING)
def test_many_additions_to_the_same_rows_meet(way, transfers):
    """Long calls of both trainers, under way at the same time, over several pieces of a message."""
    count = 20_000 if transfers == "messages" else 1_000  # Open MPI sends a message a row
    if way == "on disk":
        count = 300
    with ranks_of(ROUTES[f"one server, {way}"], transfers, rows=count, width=33) as ranks:
        if ranks.role is Role.SERVER:
            ranks.records[:] = 1.0
        ranks.table[:] = 1.0
        ranks.window.synchronise()
        ranks.meet()

        def add() -> None:
            rows = np.random.default_rng(ranks.role_rank).permutation(count)
            for _ in range(4):
                pending = ranks.window.start_add(rows, np.ones((count, 33), dtype=np.float32))
                pending.wait()
                assert pending.advance()

        ranks.on_trainers(add)
        ranks.table += 4 * ranks.trainers
        ranks.check_servers()


@pytest.mark.mpi(min_size=4)
@all_ways
def test_no_rows_are_no_traffic(routes, transfers):
    with ranks_of(routes, transfers) as ranks:

        def move_nothing() -> None:
            nothing = np.empty(0, dtype=np.int64)
            assert ranks.window.get(nothing).shape == (0, 5)
            ranks.window.put(nothing, np.empty((0, 5), dtype=np.float32))
            ranks.window.add(nothing, np.empty((0, 5), dtype=np.float32))

        ranks.on_trainers(move_nothing)
        ranks.check_servers()


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("way", ["loads", "transfers", "one elsewhere", "on disk"])
def test_a_server_may_have_no_rows(way):
    """A table of one row on two servers."""
    with ranks_of(ROUTES[f"two servers, {way}"], rows=1) as ranks:

        def get() -> None:
            np.testing.assert_array_equal(ranks.window.get(np.asarray([0])), ranks.table)

        ranks.on_trainers(get)
        ranks.check_servers()


@pytest.mark.mpi(min_size=4)
def test_only_servers_hold_rows():
    with ranks_of(ROUTES["two servers, loads"]) as ranks:
        held = 0 if ranks.role is not Role.SERVER else (31, 30)[ranks.role_rank]
        assert ranks.window.local_rows == held
        assert ranks.window.local.shape == (held, 5)


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("same_host", ["loads", "transfers"])
@far_ways
def test_many_rows_go_in_one_call(same_host, transfers):
    """More than a pipeline's worth of one message, out of order, on the smallest world."""
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 0), same_host)
    with ranks_of(routes, transfers, rows=50_000, width=64) as ranks:
        rows = np.random.default_rng(2).permutation(50_000)

        def swap() -> None:
            np.testing.assert_array_equal(ranks.window.get(rows), ranks.table[rows])
            ranks.window.put(rows, ranks.table[rows[::-1]])

        ranks.on_trainers(swap)
        ranks.table[rows] = ranks.table[rows[::-1]]
        ranks.check_servers()


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize(("same_host", "have_rows"), [("loads", (1, 2)), ("transfers", (1,))])
def test_ranks_that_have_the_tables_in_memory_ask_for_huge_pages(same_host, have_rows):
    """Each for itself. Where trainers do not load rows, the server has them alone."""
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 0), same_host)
    with RowWindow(MPI.COMM_WORLD, routes, RoundRobinPartition(1 << 16, 1), 80, TIMEOUT_S) as window:
        tables = window.host_rows
        assert (len(tables) == 1 << 16) == (MPI.COMM_WORLD.Get_rank() in have_rows)
        if ask_for_huge_pages(np.empty(1 << 22, dtype=np.float64)):  # not on a kernel without them
            whole = tables.nbytes - 2 * mmap.PAGESIZE
            assert asked_bytes(tables.ctypes.data, tables.nbytes) >= whole


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("same_host", ["loads", "transfers"])
def test_rows_start_with_a_line_of_the_cache(same_host):
    """So that rows of 64 bytes are in one each, also where a server has its memory from MPI alone."""
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 0), same_host)
    with RowWindow(MPI.COMM_WORLD, routes, RoundRobinPartition(1 << 16, 1), 16, TIMEOUT_S) as window:
        assert not window.host_rows.size or window.host_rows.ctypes.data % 64 == 0


@pytest.mark.mpi(min_size=4)
@all_ways
def test_several_calls_may_be_under_way_at_once(routes, transfers, monkeypatch):
    """Of different rows, in one piece or four, in whatever order they are waited for."""
    monkeypatch.setattr(client, "_SHORTEST_PIECE_BYTES", 1 << 10)
    count = 8_000 if routes.in_memory else 300
    with ranks_of(routes, transfers, rows=count, width=33) as ranks:
        rng = np.random.default_rng(3)
        move_beside_each_other(ranks, rng)
        get_beside_a_put(ranks, rng)
        for kind in ("put", "add"):
            write_beside_a_get(ranks, rng, kind)


def move_beside_each_other(ranks: Ranks, rng: np.random.Generator) -> None:
    """A get and a put; the one that was started last may be complete first."""
    shares = np.array_split(rng.permutation(len(ranks.table)), 2 * ranks.trainers)

    def exchange() -> None:
        taken, given = shares[2 * ranks.role_rank], shares[2 * ranks.role_rank + 1]
        records = np.empty((taken.size, 33), dtype=np.float32)
        put = ranks.window.start_put(given, -ranks.table[given])
        get = ranks.window.start_get(taken, records)
        put.wait()
        get.wait()
        assert put.advance()
        np.testing.assert_array_equal(records, ranks.table[taken])

    ranks.on_trainers(exchange)
    for given in shares[1::2]:
        ranks.table[given] *= -1
    ranks.check_servers()


def get_beside_a_put(ranks: Ranks, rng: np.random.Generator) -> None:
    """Each get brings its own rows."""
    count = len(ranks.table)
    got, *given = np.array_split(rng.permutation(count), ranks.trainers + 1)
    calls = [rng.permutation(got)[:size] for size in (count, count // 4, 0, 3, count)]

    def get() -> None:
        put_rows = given[ranks.role_rank]
        for order in (1, -1):
            found = [np.empty((rows.size, 33), dtype=np.float32) for rows in calls]
            gets = [ranks.window.start_get(rows, into) for rows, into in zip(calls, found, strict=True)]
            ranks.window.start_put(put_rows, ranks.table[put_rows]).wait()
            for get in gets[::order]:
                get.wait()
            for rows, records in zip(calls, found, strict=True):
                np.testing.assert_array_equal(records, ranks.table[rows])

    ranks.on_trainers(get)
    ranks.check_servers()


def write_beside_a_get(ranks: Ranks, rng: np.random.Generator, kind: str) -> None:
    """Each of several puts, or adds, takes its own rows to the servers."""
    for order in (1, -1):
        got, *given = np.array_split(rng.permutation(len(ranks.table)), ranks.trainers + 1)
        ends = np.cumsum([20_000, 40, 0, 3, 2_000]) * got.size // 30_000
        calls = np.split(given[ranks.role_rank], ends[:-1]) if ranks.role is Role.TRAINER else []

        def write(calls=calls, got=got, order=order) -> None:
            start = ranks.window.start_put if kind == "put" else ranks.window.start_add
            sign = -1 if kind == "put" else 1
            writes = [start(rows, sign * ranks.table[rows]) for rows in calls]
            np.testing.assert_array_equal(ranks.window.get(got), ranks.table[got])
            for write in writes[::order]:
                write.wait()

        ranks.on_trainers(write)
        for rows in given:
            ranks.table[rows] *= -1 if kind == "put" else 2
        ranks.check_servers()


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("kind", ["put", "add"])
@pytest.mark.parametrize("piece", [0, 1, 3])
def test_a_put_is_complete_when_its_own_rows_are_there(kind, piece, monkeypatch):
    """Not when those of a later one are: a server that is held up at one of four pieces answers neither.

    It has memory for three of the first one, or for its last and three of the second.
    """
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 1), "auto")
    world, method = MPI.COMM_WORLD, "scatter" if kind == "put" else "add"
    go_on, count = getattr(SharedRows, method), 20_000
    held, at_work = piece * count // 8, 4 if piece == 3 else 3
    pieces, most = 0, 0

    def held_up(store: SharedRows, places: np.ndarray, records: np.ndarray) -> Iterator[None]:
        nonlocal pieces
        while held in places and not (most >= at_work and world.Iprobe(2, 7)):
            yield
        yield from go_on(store, places, records)
        pieces -= 1

    def new_memory(shape: object, dtype: type) -> np.ndarray:
        nonlocal pieces, most
        pieces += dtype == np.float32  # others are for offsets
        most = max(most, pieces)
        return np.empty(shape, dtype)

    monkeypatch.setattr(SharedRows, method, held_up)
    monkeypatch.setattr(server, "np", SimpleNamespace(empty=new_memory, float32=np.float32, int32=np.int32))
    with ranks_of(routes, rows=count, width=33) as ranks:

        def write() -> None:
            start = ranks.window.start_put if kind == "put" else ranks.window.start_add
            writes = [start(rows, ranks.table[rows]) for rows in np.split(np.arange(count), 2)]
            assert not eventually(lambda: any(write.advance() for write in writes), 0.2)
            world.send(None, 1, 7)
            for write in writes:
                write.wait()

        ranks.on_trainers(write)
        if kind == "add":
            ranks.table *= 2
        ranks.check_servers()
        if ranks.role is Role.SERVER:
            world.recv(source=2, tag=7)
            assert most <= 4


@pytest.mark.mpi(min_size=3)
def test_rows_that_do_not_come_are_an_error():
    """A server that polls too late; afterwards it answers all the same."""
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 1), "auto")
    comm = MPI.COMM_WORLD.Dup()
    with RowWindow(comm, routes, RoundRobinPartition(61, 1), 5, timeout_s=0.2) as window:
        if comm.Get_rank() == 2:
            get = window.start_get(np.arange(61), np.zeros((61, 5), dtype=np.float32))
            time.sleep(0.3)
            assert not get.advance(), "its time begins now"
            with pytest.raises(WaitTimeoutError, match=r"waited 0 s for 61 embedding rows from the servers"):
                wait_until(get.advance, "the error", TIMEOUT_S)
            MPI.COMM_WORLD.send(None, 1)
        if comm.Get_rank() == 1:
            MPI.COMM_WORLD.recv(source=2)
            serve_until_barrier(comm, window.answer, Polls(100e-6))
        else:
            wait_for_barrier(comm, "the others", TIMEOUT_S)
    comm.Free()


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("same_host", ["loads", "transfers"])
@pytest.mark.parametrize("wrong", [-1, 61])
def test_rows_that_do_not_exist_are_refused(same_host, wrong):
    """Before any memory is touched: what lies there is not the tables'."""
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 0), same_host)
    with ranks_of(routes) as ranks:

        def reach_out() -> None:
            rows = np.asarray([3, wrong, 4])
            with pytest.raises(ValueError, match=rf"row {wrong}: the tables have rows 0 to 60"):
                ranks.window.get(rows)
            with pytest.raises(ValueError, match=rf"row {wrong}: the tables have rows 0 to 60"):
                ranks.window.put(rows, np.zeros((3, 5), dtype=np.float32))
            with pytest.raises(ValueError, match=rf"row {wrong}: the tables have rows 0 to 60"):
                ranks.window.add(rows, np.zeros((3, 5), dtype=np.float32))

        ranks.on_trainers(reach_out)
        ranks.check_servers()


@pytest.mark.mpi(min_size=3)
def test_records_that_do_not_fit_their_rows_are_refused():
    with ranks_of(RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 0), "loads")) as ranks:

        def put() -> None:
            rows = np.arange(3)
            with pytest.raises(ValueError, match=r"records float32 \[2, 5\]: must be float32 \[3, 5\]"):
                ranks.window.put(rows, np.zeros((2, 5), dtype=np.float32))
            with pytest.raises(ValueError, match=r"records float64 \[3, 5\]: must be float32 \[3, 5\]"):
                ranks.window.put(rows, np.zeros((3, 5)))  # type: ignore[arg-type] # the fault
            with pytest.raises(ValueError, match=r"records float32 \[2, 5\]: must be float32 \[3, 5\]"):
                ranks.window.add(rows, np.zeros((2, 5), dtype=np.float32))

        ranks.on_trainers(put)
        ranks.check_servers()


@pytest.mark.mpi(min_size=3)
def test_more_rows_than_mpi_can_address_are_refused():
    """Before anything is allocated; the cure is a number of servers."""
    partition = RoundRobinPartition(2**33, servers=1)
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 2), "auto")
    with pytest.raises(CapacityError, match=r"8589934592 rows on one embedding server .* roles\.servers to at least 5"):
        RowWindow(MPI.COMM_WORLD, routes, partition, 4, TIMEOUT_S)


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("way", ["one server", "two servers"])
def test_announced_rows_are_read_ahead_and_are_those_of_the_table(way):
    """Each trainer announces what it gets and puts in several rounds, all before the first, and in fewer calls."""
    with ranks_of(ROUTES[f"{way}, on disk"], rows=20_000, width=33) as ranks:
        rng = np.random.default_rng(7)
        shares = np.array_split(rng.permutation(20_000), ranks.trainers)
        rounds = [[rng.choice(share, 500, replace=False) for share in shares] for _ in range(6)]

        def move() -> None:
            own = [rows[ranks.role_rank] for rows in rounds]
            for rows in own:
                ranks.window.announce(Use.GET, rows)
                ranks.window.announce(Use.PUT, rows)
            calls = [np.concatenate(own[:2]), *own[2:]]
            for pair in (calls[:2], calls[2:4], calls[4:]):  # two at a time, as a mover gets them
                found = [np.empty((rows.size, 33), dtype=np.float32) for rows in pair]
                for get in [ranks.window.start_get(rows, into) for rows, into in zip(pair, found, strict=True)]:
                    get.wait()
                for rows, records in zip(pair, found, strict=True):
                    np.testing.assert_array_equal(records, ranks.table[rows])
            for pair in (own[:2], own[2:4], own[4:]):
                for put in [ranks.window.start_put(rows, -ranks.table[rows]) for rows in pair]:
                    put.wait()

        ranks.on_trainers(move)
        for rows in {row for shares in rounds for share in shares for row in share.tolist()}:
            ranks.table[rows] *= -1
        ranks.check_servers()
        if ranks.store is not None:
            assert 0 < ranks.store.blocks_ahead <= ranks.store.blocks_read


@pytest.mark.mpi(min_size=4)
def test_servers_in_memory_hear_of_nothing():
    with ranks_of(ROUTES["one server, transfers"]) as ranks:
        assert not ranks.window.reads_ahead
        ranks.on_trainers(lambda: ranks.window.announce(Use.GET, np.asarray([10**9])))
