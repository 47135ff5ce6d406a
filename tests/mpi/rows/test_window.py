"""Rows behind one-sided calls are a table: what trainers put and add, every trainer gets and the servers hold."""

import mmap
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.config.sections.execution import TRANSFER_WAYS
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.mpi.rows.client import RowClient
from bagpipe_hpc.mpi.rows.host_tables import HostTables
from bagpipe_hpc.mpi.rows.one_sided import OneSidedRows
from bagpipe_hpc.mpi.rows.window import RowWindow, require_addressable
from bagpipe_hpc.rows.copies import NumpyRowCopies
from bagpipe_hpc.rows.huge_pages import ask_for_huge_pages
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.store import Use
from tests.memory_flags import asked_bytes
from tests.mpi.rows.window_ranks import ROUTES, TIMEOUT_S, all_ways, far_ways, ranks_of

widths = pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 17])
SHARING = [(way, kind) for way in ("loads", "transfers", "a trainer elsewhere") for kind in TRANSFER_WAYS]
SHARING.append(("on disk", "messages"))
"""How two trainers reach the rows of one server."""


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


ADDED_BY = {
    ("one server, loads", "messages"): {2: {"memory"}, 3: {"memory"}},
    ("one server, transfers", "messages"): {1: {"copies"}, 2: {"messages"}, 3: {"messages"}},
    ("one server, transfers", "one_sided"): {2: {"window"}, 3: {"window"}},
    ("one server, a trainer elsewhere", "messages"): {1: {"memory"}, 2: {"memory"}, 3: {"messages"}},
    ("one server, a trainer elsewhere", "one_sided"): {2: {"window"}, 3: {"window"}},
    ("two servers, one elsewhere", "messages"): {1: {"copies"}, 3: {"memory", "messages"}},
    ("two servers, one elsewhere", "one_sided"): {3: {"memory", "window"}},
}
"""How each world rank adds to rows. Two ways lead to a server only where they are atomic together: accumulation in the
memory of a host, by its trainers and by the server for others."""


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(("way", "transfers"), ADDED_BY)
def test_ways_to_add_to_a_row_are_atomic_together(way, transfers, monkeypatch):
    """Where they were not, an addition would be lost so seldom that no test of sums would see it."""
    noted: set[str] = set()

    def note(owner, method, name):
        original = getattr(owner, method)

        def noting(*arguments):
            noted.add(name)
            return original(*arguments)

        monkeypatch.setattr(owner, method, noting)

    note(HostTables, "add", "memory")
    note(NumpyRowCopies, "add", "copies")
    note(RowClient, "start_add", "messages")
    note(OneSidedRows, "start_add", "window")
    with ranks_of(ROUTES[way], transfers) as ranks:
        ranks.on_trainers(lambda: ranks.window.add(np.arange(61), ranks.table))
        assert noted == ADDED_BY[way, transfers].get(ranks.comm.Get_rank(), set())


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


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("same_host", ["loads", "transfers"])
@pytest.mark.parametrize("wrong", [-1, 61])
def test_rows_that_do_not_exist_are_refused(same_host, wrong):
    """Before any memory is touched: what lies there is not the tables'."""
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 0), same_host)
    with ranks_of(routes) as ranks:

        def reach_out() -> None:
            rows = np.asarray([0, wrong, 4])
            with pytest.raises(ValueError, match=rf"row {wrong}: the tables have rows 0 to 60"):
                ranks.window.get(rows)
            with pytest.raises(ValueError, match=rf"row {wrong}: the tables have rows 0 to 60"):
                ranks.window.put(rows, np.zeros((3, 5), dtype=np.float32))
            with pytest.raises(ValueError, match=rf"row {wrong}: the tables have rows 0 to 60"):
                ranks.window.add(rows, np.zeros((3, 5), dtype=np.float32))

        ranks.on_trainers(reach_out)
        ranks.check_servers()


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("reads_ahead", [True, False])
def test_rows_that_do_not_exist_are_not_announced(comm, reads_ahead):
    """Where servers want to know of rows at all."""
    where = ROUTES["one server, on disk"], RoundRobinPartition(61, 1)
    with RowWindow(comm, *where, 5, TIMEOUT_S, reads_ahead=reads_ahead) as window:
        assert window.reads_ahead == reads_ahead
        refused = pytest.raises(ValueError, match=r"row 61: the tables have rows 0 to 60")
        with refused if reads_ahead else nullcontext():
            window.announce(Use.PUT, np.asarray([0, 61]))


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
def test_a_trainer_synchronises_memory_before_it_reads_and_after_it_writes(monkeypatch):
    """And moves rows by the copies that it was given."""
    noted: list[str] = []

    class Noted(NumpyRowCopies):
        def gather(self, *arguments):
            noted.append("gather")
            super().gather(*arguments)

        def scatter(self, *arguments):
            noted.append("scatter")
            super().scatter(*arguments)

    def note(method):
        original = getattr(HostTables, method)

        def noting(*arguments):
            noted.append(method)
            original(*arguments)

        monkeypatch.setattr(HostTables, method, noting)

    for method in ("synchronise", "add"):
        note(method)
    comm, rows, records = MPI.COMM_WORLD, np.asarray([5, 3]), np.ones((2, 5), dtype=np.float32)
    routes = RowRoutes.choose(RoleLayout(servers=1, trainers=1), (0, 0, 0), "loads")
    with RowWindow(comm, routes, RoundRobinPartition(61, 1), 5, TIMEOUT_S, copies=Noted()) as window:
        if comm.Get_rank() == 2:
            window.put(rows, records)
            window.add(rows, records)
            np.testing.assert_array_equal(window.get(rows), 2 * records)
            assert noted == ["scatter", "synchronise", "add", "synchronise", "synchronise", "gather"]
        comm.Barrier()


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(
    ("way", "transfers", "asked", "from_memory"),
    [
        ("one server, loads", "messages", [], []),
        ("one server, a trainer elsewhere", "messages", [0], [0]),
        ("one server, a trainer elsewhere", "one_sided", [0], []),
        ("two servers, one elsewhere", "messages", [0], [0]),
        ("two servers, on disk", "messages", [0, 1], []),
    ],
)
def test_servers_know_whether_anybody_asks_them(way, transfers, asked, from_memory):
    with ranks_of(ROUTES[way], transfers) as ranks:
        is_server, server = ranks.role is Role.SERVER, ranks.role_rank
        assert ranks.window.is_asked == (is_server and server in asked)
        assert ranks.window.answers_from_memory == (is_server and server in from_memory)


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize(
    ("rows", "cure"),
    [
        ([2**33], r"at least 5$"),
        ([2**31], r"at least 2$"),
        ([10, 2**31, 10], r"at least 4, or another tables\.placement, such as round_robin$"),
        ([2**31, 10], r"at least 3, or another tables\.placement, such as round_robin$"),
        ([2**31 - 1, 2**31 - 1], None),
    ],
    ids=["many", "one too many", "on one of three servers", "on one of two", "as many as there may be"],
)
def test_more_rows_than_mpi_can_address_are_refused(rows, cure):
    """Before anything is allocated; the cure is a number of servers. Trainers of the same host load any number."""
    partition: Any = SimpleNamespace(servers=len(rows), rows_on=lambda server: rows[server])
    for same_host in ("transfers", "loads"):
        routes = RowRoutes.choose(RoleLayout(len(rows), trainers=1), (0,) * (len(rows) + 2), same_host)
        if cure is None or same_host == "loads":
            require_addressable(routes, partition)
            continue
        message = rf"{max(rows)} rows on one embedding server .* roles\.servers to {cure}"
        with pytest.raises(CapacityError, match=message):
            RowWindow(MPI.COMM_WORLD, routes, partition, 4, TIMEOUT_S)
