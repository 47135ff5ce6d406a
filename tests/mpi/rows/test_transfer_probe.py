"""Every way between hosts is tried on the real ranks, and all ranks come to the same answer."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.cluster.transfer_choice import choose_transfers
from bagpipe_hpc.config.sections.execution import TRANSFER_WAYS
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.mpi.rows import one_sided, transfer_probe
from bagpipe_hpc.mpi.rows.one_sided import OneSidedRows
from bagpipe_hpc.mpi.rows.transfer_probe import _far_rows, _table, probe_transfers, probed_rows
from bagpipe_hpc.mpi.rows.window import RowWindow

TIMEOUT_S = 30.0
ONE_SERVER = RoleLayout(servers=1, trainers=2)
ROUTES = {
    "one server": RowRoutes.choose(ONE_SERVER, (0, 0, 0, 0), "transfers"),
    "one server, a trainer elsewhere": RowRoutes.choose(ONE_SERVER, (0, 0, 0, 3), "auto"),
    "two servers, one elsewhere": RowRoutes.choose(RoleLayout(servers=2, trainers=1), (0, 1, 0, 0), "auto"),
}
every_route = pytest.mark.parametrize("routes", [pytest.param(routes, id=name) for name, routes in ROUTES.items()])


def probe(comm: MPI.Intracomm, routes: RowRoutes, clock: Callable[[], float] = MPI.Wtime) -> list:
    return probe_transfers(comm, routes, 5, 40, 100e-6, TIMEOUT_S, clock=clock)


def far_trainers(routes: RowRoutes) -> int:
    layout = routes.layout
    return sum(bool(routes.far_servers(layout.world_rank(Role.TRAINER, t))) for t in range(layout.trainers))


@pytest.mark.mpi(min_size=4)
@every_route
def test_all_ranks_know_what_each_trainer_found(comm, routes):
    trials = probe(comm, routes)
    assert len(trials) == far_trainers(routes)
    for trial in trials:
        assert set(trial) == set(TRANSFER_WAYS)
        assert all(0 < seconds < TIMEOUT_S for seconds in trial.values())
    assert comm.allgather(trials) == [trials] * 4
    choices = comm.allgather(choose_transfers(trials, 40, 20))
    assert choices == choices[:1] * 4


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("faster", TRANSFER_WAYS)
def test_the_way_that_took_less_is_taken(comm, faster, monkeypatch):
    """A clock that moves with the rows: by the other way, those of one trainer take three times as long.

    The first round does not count, however fast it was; of the others the fastest does.
    """
    now = [0.0]
    rounds = dict.fromkeys(TRANSFER_WAYS, 0)
    round_s = (0.1, 2.0, 1.0, 4.0)
    windows: dict[int, str] = {}
    opened, put = RowWindow.__init__, RowWindow.put

    def open_window(window, *arguments):
        opened(window, *arguments)
        windows[id(window)] = arguments[5]

    def slow_put(window, rows, records):
        put(window, rows, records)
        way = windows[id(window)]
        is_slow = way != faster and comm.Get_rank() == 3
        now[0] += round_s[rounds[way]] * (3.0 if is_slow else 1.0)
        rounds[way] += 1

    monkeypatch.setattr(RowWindow, "__init__", open_window)
    monkeypatch.setattr(RowWindow, "put", slow_put)
    slower = next(way for way in TRANSFER_WAYS if way != faster)
    trials = probe(comm, ROUTES["one server"], clock=lambda: now[0])
    assert trials == [pytest.approx(times) for times in ({faster: 1.0, slower: 1.0}, {faster: 1.0, slower: 3.0})]
    assert choose_transfers(trials, 40, 20).way == faster


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("ways", [TRANSFER_WAYS, TRANSFER_WAYS[::-1]])
def test_servers_stay_until_the_last_way_is_tried(comm, ways, monkeypatch):
    """Also if it is one that they must answer."""
    monkeypatch.setattr(transfer_probe, "TRANSFER_WAYS", ways)
    assert [list(trial) for trial in probe(comm, ROUTES["one server"])] == [list(ways)] * 2


@pytest.mark.mpi(min_size=4)
def test_a_way_that_gives_back_other_numbers_is_not_taken(comm, monkeypatch):
    start_put = OneSidedRows.start_put

    def put_wrong(rows, server, offsets, records):
        if comm.Get_rank() == 2:
            records = records + 1
        return start_put(rows, server, offsets, records)

    monkeypatch.setattr(OneSidedRows, "start_put", put_wrong)
    trials = probe(comm, ROUTES["one server"])
    assert math.isinf(trials[0]["one_sided"])
    assert math.isfinite(trials[1]["one_sided"])
    assert choose_transfers(trials, 40, 20).way == "messages"


@pytest.mark.mpi(min_size=4)
def test_windows_with_private_copies_are_not_tried(comm, monkeypatch):
    """A server would not see what is put; nor do runs with `roles.transfers=one_sided` begin."""
    monkeypatch.setattr(transfer_probe, "has_unified_memory", lambda _: False)
    trials = probe(comm, ROUTES["one server"])
    assert [list(trial) for trial in trials] == [["messages"]] * 2
    monkeypatch.setattr(one_sided, "has_unified_memory", lambda _: False)
    with pytest.raises(ConfigError, match=r"roles\.transfers = 'one_sided': .* use messages, or auto"):
        OneSidedRows(MPI.COMM_SELF, np.zeros((1, 6), dtype=np.float32), [0])


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(("rows", "row_bytes", "probed"), [(0, 64, 1), (100, 64, 100), (10**6, 64, 8192)])
def test_a_batchs_rows_are_tried_within_a_limit(rows, row_bytes, probed):
    assert probed_rows(rows, row_bytes) == probed


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_each_trainer_has_rows_of_every_far_server(rows):
    """However few are tried, as where a width has a small table alone: one of two hosts has the first servers."""
    layout = RoleLayout(servers=5, trainers=2)
    routes = RowRoutes.choose(layout, (0, 0, 0, 0, 1, 1, 0, 1), "auto")
    partition = _table(layout, rows)
    shares = [_far_rows(partition, routes, layout.world_rank(Role.TRAINER, trainer)) for trainer in range(2)]
    assert [set(partition.owner(share)) for share in shares] == [{3, 4}, {0, 1, 2}]
    tried = np.concatenate(shares)
    assert np.unique(tried).size == tried.size < partition.total_rows
    assert (np.diff(tried) < 0).any() or rows == 1, "in no order"
