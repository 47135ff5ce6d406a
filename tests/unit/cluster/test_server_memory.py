"""A run whose tables do not fit is told what would do, and that would do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.cluster.server_memory import HostNeed, Need, hosts_to_add, memory_problem, servers_that_fit

GB = 10**9
HOST = HostNeed("node1", 1, 3, Need(tables_bytes=6 * GB, planner_bytes=GB), 10 * GB, 9 * GB)


def holds(tables_bytes: int, rooms: list[int], servers: int) -> bool:
    """Deal servers out to hosts one by one, each to the one with the most room left."""
    left = list(rooms)
    for _ in range(servers):
        roomiest = left.index(max(left))
        left[roomiest] -= -(-tables_bytes // servers)
        if left[roomiest] < 0:
            return False
    return True


@given(st.integers(1, 10**6), st.lists(st.integers(0, 10**5), min_size=1, max_size=8))
def test_the_fewest_servers_that_fit(tables_bytes: int, rooms: list[int]) -> None:
    servers = servers_that_fit(tables_bytes, rooms)
    numbers = range(1, 16 * len(rooms) + 1)
    assert servers == next((number for number in numbers if holds(tables_bytes, rooms, number)), 0)


@given(st.integers(1, 10**6), st.lists(st.integers(0, 10**5), min_size=1, max_size=5), st.integers(10**4, 10**6))
def test_added_hosts_suffice(tables_bytes: int, rooms: list[int], further: int) -> None:
    hosts, servers = hosts_to_add(tables_bytes, rooms, further)
    assert hosts >= 1
    assert holds(tables_bytes, [*rooms, *[further] * hosts], servers)


def test_hosts_without_memory_do_not_help() -> None:
    assert hosts_to_add(100, [10], 0) == (0, 0)


def test_a_slip_of_the_pen_asks_for_no_million_of_hosts() -> None:
    """Nor is one looked for, host by host."""
    assert hosts_to_add(10**18, [GB], 10 * GB) == (0, 0)


def test_what_fits_is_no_problem() -> None:
    assert memory_problem([HOST, replace(HOST, name="node2", servers=0, need=Need(0, 6 * GB, 4 * GB))]) is None


def test_rows_that_nobody_shares_need_no_shared_memory() -> None:
    small = replace(HOST, shared_bytes=2 * GB)
    problem = memory_problem([small])
    assert problem is not None
    assert problem.startswith("tables need 6.0 GB of shared memory on node1, where /dev/shm has 2.0 GB free")
    alone = replace(small, need=replace(HOST.need, tables_alone=True) + Need(caches_bytes=GB))
    assert memory_problem([alone]) is None
    assert alone.room_bytes == 8 * GB


def test_servers_on_a_small_host_could_be_elsewhere() -> None:
    other = replace(HOST, name="node2", servers=0, need=Need(planner_bytes=GB))
    problem = memory_problem([replace(HOST, servers=2, need=Need(12 * GB, GB)), other])
    assert problem is not None
    assert problem.startswith(
        "tables, row caches, dense models, planner and evaluation need 13.0 GB on node1 (3 ranks), which has 10.0 GB "
        "free: the tables take 12.0 GB, 6.0 GB on each of 2 servers. These hosts have room: 2 servers would do "
        "(roles.servers=2), each where there is memory for 6.0 GB; or use a smaller model.embedding_dim"
    )


def test_hosts_that_are_too_few() -> None:
    """Each has room for 9 of 60 GB, and a further one for 9 as well: in all seven, a server each."""
    problem = memory_problem([replace(HOST, name=name, need=Need(30 * GB, GB)) for name in ("node1", "node2")])
    assert problem is not None
    assert (
        "the tables take 60.0 GB, 30.0 GB on each of 2 servers. These hosts have room for 18.0 GB: 5 more like node1 "
        "would do, with 7 servers (roles.servers=7); or use" in problem
    )


def test_shared_memory_is_a_limit_of_its_own() -> None:
    problem = memory_problem([replace(HOST, shared_bytes=4 * GB)])
    assert problem is not None
    assert problem.startswith("tables need 6.0 GB of shared memory on node1, where /dev/shm has 4.0 GB free (mount -o ")
    assert "These hosts have room for 4.0 GB: 1 more like node1 would do, with 2 servers" in problem


def test_hosts_without_any_shared_memory() -> None:
    problem = memory_problem([replace(HOST, shared_bytes=0)])
    assert problem is not None
    assert "Use hosts with more memory, a smaller model.embedding_dim" in problem


@pytest.mark.parametrize(
    ("need", "pieces", "cure"),
    [
        (Need(caches_bytes=11 * GB), "row caches 11.0 GB without", "a shorter lookahead.batches, a smaller cache.rows"),
        (Need(0, GB, 99 * GB), "row caches 1.0 GB, dense models 99.0 GB without", "a smaller model ([model])"),
        (Need(0, GB, GB, 9 * GB), "GB, planner 9.0 GB without", "a shorter lookahead.batches, or start fewer"),
        (
            Need(planner_bytes=99 * GB, smaller_planner="its.state=small") + Need(dense_bytes=GB),
            "GB, planner 99.0 GB without",
            "a shorter lookahead.batches, or its.state=small, or start fewer",
        ),
    ],
)
def test_a_host_without_servers_is_told_its_largest_piece(need: Need, pieces: str, cure: str) -> None:
    problem = memory_problem([HOST, replace(HOST, name="node2", servers=0, need=need)])
    assert problem is not None
    assert f"need {need.total_bytes / GB:.1f} GB on node2 (3 ranks), which has 10.0 GB free: " in problem
    assert pieces in problem
    assert cure in problem.partition("without any table; set ")[2]
    assert problem.endswith("or start fewer ranks there")


def test_servers_elsewhere_do_not_help_a_host_full_of_caches() -> None:
    full = replace(HOST, need=Need(6 * GB, 11 * GB))
    problem = memory_problem([full, replace(HOST, name="node2", free_bytes=99 * GB)])
    assert problem is not None
    assert "need 17.0 GB on node1 (3 ranks), which has 10.0 GB free: row caches 11.0 GB without any table" in problem


def test_a_placement_that_fills_one_server_is_said_to() -> None:
    """More servers would not help: the largest table stays on one of them."""
    need = Need(tables_bytes=90 * 10**9, fullest_server_bytes=80 * 10**9)
    hosts = [HostNeed("a", servers=3, ranks=3, need=need, free_bytes=60 * 10**9, shared_bytes=60 * 10**9)]
    problem = memory_problem(hosts)
    assert problem is not None
    assert "80.0 GB of them lie on one of 3 servers: set tables.placement=round_robin" in problem


def test_the_fullest_server_of_a_host_counts() -> None:
    both = Need(tables_bytes=3, fullest_server_bytes=3) + Need(tables_bytes=5, fullest_server_bytes=5)
    assert (both.tables_bytes, both.fullest_server_bytes) == (8, 5)
