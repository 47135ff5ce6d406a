"""Every rank gets one role; trainers are where GPUs are, servers where memory is, the oracle apart."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.role_placement import Placement, RankPlace, place_roles, usable_gpus
from bagpipe_hpc.errors import ConfigError


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[RankPlace], RoleLayout]:
    """Ranks in any order over some hosts, and roles for them."""
    hosts = [
        (draw(st.integers(1, 5)), RankPlace(host, draw(st.sampled_from([0, 0, 1, 2, 4])), draw(st.integers(1, 1000))))
        for host in range(draw(st.integers(1, 5)))
    ]
    places = draw(st.permutations([place for count, place in hosts for _ in range(count)]))
    while len(places) < 3:
        places.append(places[0])
    servers = draw(st.integers(1, len(places) - 2))
    return places, RoleLayout(servers, len(places) - 1 - servers)


def job(*hosts: tuple[int, int, int]) -> list[RankPlace]:
    """Places of a job whose hosts have so many ranks, GPUs and bytes."""
    return [RankPlace(host, gpus, memory) for host, (ranks, gpus, memory) in enumerate(hosts) for _ in range(ranks)]


def hosts_of(role: Role, order: list[int], layout: RoleLayout, places: list[RankPlace]) -> Counter[int]:
    return Counter(places[rank].host for member, rank in enumerate(order) if layout.role(member) is role)


@given(jobs())
def test_every_rank_has_one_role(job: tuple[list[RankPlace], RoleLayout]) -> None:
    places, layout = job
    order = place_roles(places, layout)
    assert sorted(order) == list(range(len(places)))
    servers, trainers = order[1 : 1 + layout.servers], order[1 + layout.servers :]
    assert servers == sorted(servers)
    assert trainers == sorted(trainers)


@given(jobs())
def test_gpus_are_not_left_idle_while_trainers_have_none(job: tuple[list[RankPlace], RoleLayout]) -> None:
    places, layout = job
    trainers = hosts_of(Role.TRAINER, place_roles(places, layout), layout, places)
    ranks = Counter(place.host for place in places)
    usable = {place.host: min(place.gpus, ranks[place.host]) for place in places}
    with_gpu = sum(min(trainers[host], usable[host]) for host in usable)
    assert with_gpu == min(layout.trainers, sum(usable.values()))
    assert usable_gpus(places) == sum(usable.values())


@given(jobs(), st.integers(0, 3))
def test_auto_makes_a_trainer_of_each_gpu(job: tuple[list[RankPlace], RoleLayout], servers: int) -> None:
    places, _ = job
    if servers > len(places) - 2:
        with pytest.raises(ConfigError, match="leaves no trainer"):
            Placement.choose(places, servers, "auto")
        return
    placement = Placement.choose(places, servers, "auto")
    assert sorted(placement.order) == list(range(len(places)))
    assert servers in (0, placement.layout.servers)
    if servers == 0 and usable_gpus(places):
        assert placement.layout.trainers == min(usable_gpus(places), len(places) - 2)


@given(jobs())
def test_a_single_host_is_in_rank_order(job: tuple[list[RankPlace], RoleLayout]) -> None:
    places, layout = job
    assert place_roles([places[0]] * len(places), layout) == list(range(len(places)))


@given(jobs(), st.integers(0, 1))
def test_rank_order_ignores_the_places(job: tuple[list[RankPlace], RoleLayout], servers: int) -> None:
    places, _ = job
    layout = RoleLayout.for_world(len(places), servers)
    placement = Placement.choose(places, servers, "rank_order")
    assert (placement.layout, placement.order) == (layout, Placement.in_rank_order(layout).order)


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_servers_are_spread_over_hosts_that_are_alike(hosts: int, ranks_each: int, data: st.DataObject) -> None:
    """What is free differs a little from start to start, which changes nothing."""
    free = data.draw(st.lists(st.integers(950, 1000), min_size=hosts, max_size=hosts))
    exact = [RankPlace(rank // ranks_each % hosts, 0, 1000) for rank in range(max(3, hosts * ranks_each))]
    places = [RankPlace(place.host, 0, free[place.host]) for place in exact]
    layout = RoleLayout.for_world(len(places), data.draw(st.integers(1, len(places) - 2)))
    order = place_roles(places, layout)
    assert order == place_roles(exact, layout)
    if hosts * ranks_each >= 3:
        count = hosts_of(Role.SERVER, order, layout, places)
        numbers = [count[host] for host in range(hosts)]
        assert max(numbers) - min(numbers) <= 1


def test_a_heterogeneous_job() -> None:
    """Two CPU nodes and two GPU nodes with four GPUs each: trainers on GPUs, the rest on CPU nodes."""
    places = job((3, 0, 1000), (2, 0, 1000), (4, 4, 1000), (4, 4, 1000))
    placement = Placement.choose(places, 0, "auto")
    assert placement.layout == RoleLayout(servers=4, trainers=8)
    assert placement.describe([f"node{place.host}" for place in places]) == [
        "node0: oracle, servers 0-1",
        "node1: servers 2-3",
        "node2: trainers 0-3",
        "node3: trainers 4-7",
    ]


def test_the_launchers_order_of_nodes_does_not_matter() -> None:
    """GPU nodes first, their ranks in turn, as `--distribution=cyclic` deals them out."""
    places = [RankPlace(host, gpus) for host, gpus in [(0, 2), (1, 2), (2, 0), (0, 2), (1, 2), (2, 0), (2, 0)]]
    placement = Placement.choose(places, 0, "auto")
    assert placement.order == (2, 5, 6, 0, 1, 3, 4)
    assert placement.describe([f"node{place.host}" for place in places]) == [
        "node0: trainers 0, 2",
        "node1: trainers 1, 3",
        "node2: oracle, servers 0-1",
    ]


def test_the_oracle_keeps_away_from_servers() -> None:
    """On one of three nodes there is no server; the trainer's GPU node is taken only where all others have one."""
    layout = RoleLayout(servers=2, trainers=3)
    assert hosts_of(Role.ORACLE, place_roles(job((2, 0, 9), (2, 0, 9), (2, 0, 9)), layout), layout, job((6, 0, 9))) == {
        0: 1
    }
    places = job((2, 0, 9), (2, 0, 9), (2, 0, 9))
    assert hosts_of(Role.ORACLE, place_roles(places, layout), layout, places) == {2: 1}
    places = job((1, 0, 9), (1, 0, 9), (4, 2, 9))
    assert hosts_of(Role.ORACLE, place_roles(places, layout), layout, places) == {2: 1}


def test_memory_attracts_servers() -> None:
    places = job((4, 0, 100), (4, 0, 300))
    layout = RoleLayout(servers=4, trainers=3)
    assert hosts_of(Role.SERVER, place_roles(places, layout), layout, places) == {0: 1, 1: 3}


def test_gpu_nodes_alone_hold_servers_too() -> None:
    """A rank more than GPUs on each of two nodes: they become the oracle and a server."""
    places = job((5, 4, 1000), (5, 4, 1000))
    placement = Placement.choose(places, 0, "auto")
    assert placement.describe(["a"] * 5 + ["b"] * 5) == ["a: server 0, trainers 0-3", "b: oracle, trainers 4-7"]


def test_gpu_groups_follow_their_ranks() -> None:
    places = [RankPlace(0, 0, 1, gpu_group=7), RankPlace(1, 1, 1, gpu_group=8), RankPlace(1, 1, 1, gpu_group=9)]
    placement = Placement.choose(places, 1, "auto")
    assert [places[rank].gpu_group for rank in placement.order] == list(placement.gpu_groups)
