"""A team of one: what fails is raised as it is; and threads are shared fairly."""

import pytest

from bagpipe_hpc.errors import DataError
from data_prep.ordered_map import fair_threads
from data_prep.ranks.board import Stage, Tell
from data_prep.ranks.team import OtherRankError, alone


def test_one_process_does_everything() -> None:
    team = alone(lambda _: None, threads=3)
    team.begin(Stage("parsed", 1))
    assert team.gather("mine") == ["mine"]
    assert team.together(lambda: 7) == [7]
    assert team.first_does(lambda: 8) == team.each_does(lambda: 8) == 8
    assert [team.take(), team.take()] == [0, 1]
    team.go_on(Tell(1))


def test_an_error_is_raised_as_it_is() -> None:
    team = alone(lambda _: None, threads=1)

    def fail() -> None:
        raise DataError("clicks:7: bad")

    with pytest.raises(DataError, match="clicks:7: bad"):
        team.each_does(fail)
    assert team.has_failed
    with pytest.raises(OtherRankError):
        team.go_on(Tell(1))


def cores(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


@pytest.mark.parametrize(
    ("allowed", "threads"),
    [
        ([cores(0, 1, 2, 3)], [4]),
        ([cores(0, 1, 2, 3)] * 2, [2, 2]),
        ([cores(0, 1), cores(2, 3)], [2, 2]),
        ([cores(0)] * 3, [1, 1, 1]),
        ([cores(0, 1, 2, 3)] * 3, [1, 1, 1]),
        ([cores(0, 1, 2, 3), cores(3)], [3, 1]),
        ([cores(*range(64))] * 2, [16, 16]),
    ],
)
def test_processes_of_a_host_share_its_cores(allowed: list[frozenset[int]], threads: list[int]) -> None:
    assert [fair_threads(allowed, own) for own in range(len(allowed))] == threads
