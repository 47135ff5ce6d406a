"""A server's rows are near where its host is shared and loads are wanted; everything else is far."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.errors import ConfigError

LAYOUT = RoleLayout(servers=2, trainers=2)
ONE_HOST = (0, 0, 0, 0, 0)
TWO_HOSTS = (0, 0, 2, 0, 2)
"""A server and a trainer on each, the oracle on the first."""


def test_on_one_host_all_servers_are_near() -> None:
    routes = RowRoutes.choose(LAYOUT, ONE_HOST, "auto")
    assert [routes.near_servers(rank) for rank in range(5)] == [(), *[(0, 1)] * 4]
    assert not routes.any_far
    assert routes == RowRoutes.choose(LAYOUT, ONE_HOST, "loads")


def test_on_two_hosts_each_trainer_has_a_near_and_a_far_server() -> None:
    routes = RowRoutes.choose(LAYOUT, TWO_HOSTS, "auto")
    assert (routes.near_servers(3), routes.far_servers(3)) == ((0,), (1,))
    assert (routes.near_servers(4), routes.far_servers(4)) == ((1,), (0,))
    assert (routes.far_trainers(0), routes.far_trainers(1)) == ((1,), (0,))


def test_loads_can_be_forbidden() -> None:
    routes = RowRoutes.choose(LAYOUT, ONE_HOST, "transfers")
    assert routes.near_servers(3) == ()
    assert routes.far_servers(3) == (0, 1)
    assert [routes.sharers(rank) for rank in range(5)] == [(rank,) for rank in range(5)]


def test_loads_alone_need_one_host() -> None:
    with pytest.raises(ConfigError, match=r"roles\.same_host = 'loads': server 1 is not on the host of trainer 0"):
        RowRoutes.choose(LAYOUT, TWO_HOSTS, "loads")


def test_where_the_oracle_is_does_not_matter() -> None:
    assert not RowRoutes.choose(LAYOUT, (9, 0, 0, 0, 0), "loads").any_far


def test_servers_without_a_trainer_beside_them_share_with_nobody() -> None:
    """Nor do trainers without a server, nor ever the oracle."""
    routes = RowRoutes.choose(RoleLayout(servers=3, trainers=3), (0, 0, 0, 1, 1, 2, 2), "auto")
    assert [routes.sharers(rank) for rank in range(7)] == [(0,), (1,), (2,), (3, 4), (3, 4), (5,), (6,)]
    assert [routes.servers_shared(rank) for rank in range(7)] == [(), (0,), (1,), (2,), (2,), (), ()]


@given(st.data(), st.sampled_from(["auto", "transfers"]))
def test_every_server_is_either_near_or_far(data: st.DataObject, same_host: str) -> None:
    layout = RoleLayout(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
    hosts = data.draw(st.lists(st.integers(0, 2), min_size=layout.world_size, max_size=layout.world_size))
    routes = RowRoutes.choose(layout, hosts, same_host)
    for trainer in range(layout.trainers):
        rank = layout.world_rank(Role.TRAINER, trainer)
        assert sorted(routes.near_servers(rank) + routes.far_servers(rank)) == list(range(layout.servers))
        assert all(routes.sharers(other) == routes.sharers(rank) for other in routes.sharers(rank))
        for server in range(layout.servers):
            is_near = same_host == "auto" and hosts[layout.world_rank(Role.SERVER, server)] == hosts[rank]
            assert (server in routes.near_servers(rank)) is is_near
            assert (trainer in routes.far_trainers(server)) is not is_near
    assert routes.any_far is any(routes.far_trainers(server) for server in range(layout.servers))


def test_a_world_of_many_ranks_is_looked_through_once() -> None:
    """Every rank does it, several times: to ask for each pair of trainers and servers anew would take too long."""
    servers, trainers = 500, 20_000
    hosts = [0, *range(servers), *(trainer // 8 for trainer in range(trainers))]
    routes = RowRoutes.choose(RoleLayout(servers, trainers), hosts, "auto")
    assert routes.any_far
    assert set(range(trainers)) - set(routes.far_trainers(3)) == set(range(24, 32))
    last = routes.layout.world_rank(Role.TRAINER, trainers - 1)
    assert routes.near_servers(last) == ()
    assert routes.near_servers(last - 8 * (trainers // 8 - servers)) == (servers - 1,)
    assert not RowRoutes.choose(routes.layout, [0] * len(hosts), "loads").any_far


def test_rows_on_disk_are_far_for_all():
    """Also on one host; loads alone are refused."""
    layout = RoleLayout(servers=2, trainers=2)
    routes = RowRoutes.choose(layout, (0,) * 5, "auto", in_memory=False)
    assert [routes.near_servers(rank) for rank in range(5)] == [()] * 5
    assert routes.far_trainers(1) == (0, 1)
    with pytest.raises(ConfigError, match=r"roles.same_host = 'loads': .* use roles.same_host=auto"):
        RowRoutes.choose(layout, (0,) * 5, "loads", in_memory=False)
