"""Several calls for rows are under way at once, announced or not; each is complete when its own rows are there."""

import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.rows import client, server
from bagpipe_hpc.mpi.rows.server import SharedRows
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import Polls, serve_until_barrier, wait_for_barrier, wait_until
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.store import Use
from tests.eventually import eventually
from tests.mpi.rows.window_ranks import ROUTES, TIMEOUT_S, Ranks, all_ways, ranks_of


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


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(
    ("way", "transfers", "most"),
    [("loads", "messages", 2), ("transfers", "messages", 2), ("transfers", "one_sided", 1), ("on disk", "messages", 2)],
)
def test_as_many_calls_as_the_way_of_rows_is_good_for(way, transfers, most):
    """Of one-sided calls one: a put waits for all that are under way."""
    with ranks_of(ROUTES[f"one server, {way}"], transfers) as ranks:
        assert ranks.window.most_at_once == most


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
            assert ranks.store._announcements.promised == 0, "what was read ahead has been used"


@pytest.mark.mpi(min_size=4)
def test_servers_in_memory_hear_of_nothing():
    with ranks_of(ROUTES["one server, transfers"]) as ranks:
        assert not ranks.window.reads_ahead
        ranks.on_trainers(lambda: ranks.window.announce(Use.GET, np.asarray([10**9])))
