"""Trainers that are on other hosts than a plan supposes are named."""

import pytest

from bagpipe_hpc.cluster.trainer_hosts import unlike_plan


@pytest.mark.parametrize(
    ("hosts", "of_host"), [([0, 0, 3, 3], 2), ([5], 1), ([1, 1, 1, 1], 2), ([0, 1, 2], 1), ([7, 7, 7], 3)]
)
def test_nothing_is_said_where_trainers_of_a_host_share_one(hosts: list[int], of_host: int) -> None:
    assert unlike_plan(hosts, of_host) == ""


def test_the_first_trainers_that_do_not_are_named() -> None:
    assert "for trainers 2 to 3, which are on 2 hosts" in unlike_plan([0, 0, 0, 4, 4, 4], 2)
    assert "for trainers 0 to 3, which are on 4 hosts" in unlike_plan([0, 1, 2, 3], 4)
