"""A server answers until everybody has come to the barrier, fast while there is work, and leaves its core otherwise."""

import time
from collections.abc import Callable

import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.progress import serve_until_barrier
from bagpipe_hpc.mpi.waiting import wait_for_barrier

LATE_S = 0.1
TIMEOUT_S = 30.0


def polls_until_the_other_comes(answer: Callable[[], bool], poll_interval_s: float) -> tuple[int, float]:
    """How often rank 0 polled until rank 1 came to the barrier, at least `LATE_S` late, and how long that took."""
    comm = MPI.COMM_WORLD
    polls = 0

    def count() -> bool:
        nonlocal polls
        polls += 1
        return answer()

    comm.Barrier()
    start = time.monotonic()
    if comm.Get_rank() == 0:
        serve_until_barrier(comm, count, poll_interval_s)
    else:
        time.sleep(LATE_S)
        wait_for_barrier(comm, "the server", TIMEOUT_S)
    return polls, time.monotonic() - start


@pytest.mark.mpi(min_size=2)
def test_an_idle_server_sleeps_longer_and_longer():
    """20 us, then half as long again each time, up to the interval, which is reached after 19 sleeps."""
    polls, seconds = polls_until_the_other_comes(lambda: False, poll_interval_s=0.03)
    if MPI.COMM_WORLD.Get_rank() == 0:
        assert 1 <= polls <= 20 + seconds / 0.03


@pytest.mark.mpi(min_size=2)
def test_a_busy_server_sleeps_little():
    """500 sleeps of 0.1 s would take 50 s."""
    polls, seconds = polls_until_the_other_comes(iter([True] * 500 + [False] * 10**6).__next__, poll_interval_s=0.1)
    if MPI.COMM_WORLD.Get_rank() == 0:
        assert polls >= 500
        assert seconds < 25


@pytest.mark.mpi(min_size=2)
def test_a_server_with_a_core_of_its_own_spins():
    polls, _ = polls_until_the_other_comes(lambda: False, poll_interval_s=0.0)
    if MPI.COMM_WORLD.Get_rank() == 0:
        assert polls > 100


@pytest.mark.mpi(min_size=2)
def test_work_that_is_there_is_done_before_the_barrier_opens():
    """All others may have come: what has been asked is still answered."""
    left = [50]

    def answer() -> bool:
        left[0] -= left[0] > 0
        return left[0] > 0

    comm = MPI.COMM_WORLD
    serve_until_barrier(comm, answer, poll_interval_s=0.01)
    assert left == [0]
