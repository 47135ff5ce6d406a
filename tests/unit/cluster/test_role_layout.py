"""Every world rank has one role, and a batch is cut without loss."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.slices import slice_bounds

layouts = st.builds(RoleLayout, servers=st.integers(1, 20), trainers=st.integers(1, 20))


@given(layouts)
def test_world_ranks_and_role_ranks_are_a_bijection(layout: RoleLayout) -> None:
    named = [(layout.role(rank), layout.role_rank(rank)) for rank in range(layout.world_size)]
    assert [layout.world_rank(role, role_rank) for role, role_rank in named] == list(range(layout.world_size))
    expected = {Role.ORACLE: 1, Role.SERVER: layout.servers, Role.TRAINER: layout.trainers}
    for role, ranks in expected.items():
        assert [role_rank for named_role, role_rank in named if named_role is role] == list(range(ranks))


def test_the_order_is_oracle_servers_trainers() -> None:
    layout = RoleLayout(servers=2, trainers=2)
    roles = [layout.role(rank) for rank in range(5)]
    assert roles == [Role.ORACLE, Role.SERVER, Role.SERVER, Role.TRAINER, Role.TRAINER]


@pytest.mark.parametrize(
    ("world_size", "servers", "expected"),
    [
        (3, 0, RoleLayout(servers=1, trainers=1)),
        (4, 0, RoleLayout(servers=1, trainers=2)),
        (5, 0, RoleLayout(servers=2, trainers=2)),
        (11, 0, RoleLayout(servers=2, trainers=8)),
        (4, 2, RoleLayout(servers=2, trainers=1)),
        (5, 1, RoleLayout(servers=1, trainers=3)),
    ],
)
def test_a_world_is_split(world_size: int, servers: int, expected: RoleLayout) -> None:
    assert RoleLayout.for_world(world_size, servers) == expected


@given(st.integers(3, 200), st.integers(0, 50))
def test_a_split_uses_every_rank_or_is_refused(world_size: int, servers: int) -> None:
    if servers > world_size - 2:
        with pytest.raises(ConfigError, match=f"set roles.servers to at most {world_size - 2}"):
            RoleLayout.for_world(world_size, servers)
        return
    layout = RoleLayout.for_world(world_size, servers)
    assert layout.world_size == world_size
    assert layout.trainers >= 1
    assert servers in (0, layout.servers)


@pytest.mark.parametrize("world_size", [1, 2])
def test_too_few_ranks_are_refused_with_the_number_to_start(world_size: int) -> None:
    with pytest.raises(ConfigError, match=f"^{world_size} MPI ranks are too few: start at least 3"):
        RoleLayout.for_world(world_size)


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_slices_cover_the_batch_and_differ_by_at_most_one(samples: int, slices: int) -> None:
    bounds = slice_bounds(samples, slices)
    sizes = [last - first for first, last in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(sizes)) == (0, samples, slices)
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
