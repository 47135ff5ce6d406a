"""Trainers that may use the same cores share them; trainers with cores of their own keep them."""

import pytest

from bagpipe_hpc.cluster.core_share import cores_of, crowding, require_cores, threads_each
from bagpipe_hpc.errors import ConfigError

Trainer = tuple[int, frozenset[int]]


def on(host: int, *cores: int) -> Trainer:
    return host, frozenset(cores)


@pytest.mark.parametrize(
    ("trainers", "threads"),
    [
        ([on(0, *range(16))], 16),
        ([on(0, *range(16)), on(0, *range(16))], 8),
        ([on(0, 0, 1), on(0, 0, 1), on(0, 0, 1)], 1),  # more trainers than cores
        ([on(0, 0, 1, 2, 3), on(0, 4, 5, 6, 7)], 4),  # bound by the launcher
        ([on(0, *range(8)), on(3, *range(8))], 8),  # the same numbers on other hosts
        ([on(0, *range(8)), on(3, 0, 1), on(3, 2, 3)], 2),  # the least counts for all
        ([on(0, 0, 1, 2, 3), on(0, 3)], 1),
    ],
)
def test_threads_are_the_least_share(trainers: list[Trainer], threads: int) -> None:
    assert threads_each(trainers) == threads


def test_a_trainer_has_its_own_share_whatever_others_have() -> None:
    """On another host, or of other cores."""
    trainers = [on(0, 0, 1, 2, 3), on(0, 0, 1, 2, 3), on(1, 0), on(0, 4, 5, 6)]
    assert [cores_of(trainer, trainers) for trainer in trainers] == [2, 2, 1, 3]
    assert cores_of(on(0, 7), [on(0, 7), on(0, 7)]) == 0


@pytest.mark.parametrize(
    ("trainers", "threads", "said"),
    [
        ([on(0, 0, 1)] * 2, 1, ""),
        ([on(0, 0, 1), on(1, 0, 1)], 2, ""),
        ([on(0, 0), on(0, 1)], 1, ""),  # bound by the launcher
        ([on(0, 0, 1)] * 3, 1, "3 trainers with 1 thread each on 2 cores of a host"),
        ([on(0, 0, 1)], 4, "1 trainer with 4 threads each on 2 cores of a host"),
        (
            [*[on(0, 0, 1)] * 3, *[on(1, 0)] * 2, on(2, *range(8))],
            1,
            "2 trainers with 1 thread each on 1 core of a host",
        ),
    ],
)
def test_more_threads_of_trainers_than_cores_are_told(trainers: list[Trainer], threads: int, said: str) -> None:
    """Of the host with the least for each."""
    told = crowding(threads, trainers)
    assert told == (f"{said}: steps take longer than with a core for each thread" if said else "")


def test_threads_that_would_drown_a_host_are_refused() -> None:
    require_cores({"train.threads": 0, "kernels.row_threads": 32}, cores=2)
    with pytest.raises(ConfigError, match=r"kernels\.row_threads = 33: this host has 2 cores; use 32 at most"):
        require_cores({"train.threads": 0, "kernels.row_threads": 33}, cores=2)
