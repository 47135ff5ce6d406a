"""Waits end when the thing happens, when it has become pointless, or by name when it takes too long.

A server answers until everybody has come to the barrier, fast while there is work, and leaves its core otherwise.
"""

import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.request_watch import PausingWatch
from bagpipe_hpc.mpi import waiting
from bagpipe_hpc.mpi.waiting import (
    LONGEST_SLEEP_WITH_CORE_S,
    Answered,
    Polls,
    Waits,
    serve_until_barrier,
    wait_for_all,
    wait_for_barrier,
    wait_until,
)
from bagpipe_hpc.roles.request_waits import BarrierSleeps, open_watch

LATE_S = 0.1
TIMEOUT_S = 30.0


class PointlessError(Exception):
    """What a watch raises."""


def give_up() -> None:
    raise PointlessError


@pytest.mark.mpi(min_size=2)
def test_a_wait_ends_with_the_first_success():
    answers = iter([False] * 200 + [True])
    watched = []
    wait_until(lambda: next(answers), "the answers", 60.0, lambda: watched.append(None))
    assert next(answers, None) is None
    assert watched


@pytest.mark.mpi(min_size=2)
def test_a_test_that_moved_something_on_is_followed_by_the_next_at_once(monkeypatch):
    """And behind it sleeps are short again, where others have grown to the longest."""
    slept, moving = [], range(30, 33)
    monkeypatch.setattr(waiting.time, "sleep", slept.append)
    monkeypatch.setattr(waiting, "_EAGER_S", 0.0)
    monkeypatch.setattr(waiting, "_MOVING_S", 0.1)
    begin = time.thread_time

    def done() -> bool:
        tested.append(len(slept))
        until = begin() + (0.15 if len(tested) - 1 in moving else 0.0)
        while begin() < until:
            pass
        return len(tested) > 40

    tested: list[int] = []
    wait_until(done, "the answers", 60.0)
    assert tested[31:34] == [tested[30]] * 3
    assert slept[tested[30] - 1] == 500e-6
    assert slept[tested[30]] == 20e-6


@pytest.mark.mpi(min_size=2)
def test_who_has_a_core_sleeps_no_longer_than_that_allows(monkeypatch):
    slept, tests = [], iter([False] * 20 + [True])
    monkeypatch.setattr(waiting.time, "sleep", slept.append)
    monkeypatch.setattr(waiting, "_EAGER_S", 0.0)
    Waits(60.0, longest_sleep_s=LONGEST_SLEEP_WITH_CORE_S).until(lambda: next(tests), "the answers")
    assert slept[-1] == LONGEST_SLEEP_WITH_CORE_S == max(slept)
    with pytest.raises(WaitTimeoutError, match="for plan 8"):
        Waits(0.0).until(lambda: False, "plan 8")
    with pytest.raises(PointlessError):
        Waits(60.0, give_up).until(lambda: False, "a thread that failed")


@pytest.mark.mpi(min_size=2)
def test_who_may_be_late_sleeps_for_a_part_of_its_wait(monkeypatch):
    """Up to a limit; others in a wait as long do not."""
    now_s, slept = [5.0], []

    def sleep(seconds: float) -> None:
        slept.append((now_s[0], seconds))
        now_s[0] += seconds

    monkeypatch.setattr(waiting.time, "sleep", sleep)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(waiting, "_MOVING_S", TIMEOUT_S)
    monkeypatch.setattr(waiting, "_EAGER_S", 0.0)
    with pytest.raises(WaitTimeoutError):
        wait_until(lambda: False, "plan 8", 2.0, late_share=1 / 16)
    for before_s, pause_s in slept:
        assert pause_s <= max(500e-6, (before_s - 5.0) / 16)
    assert {pause_s for before_s, pause_s in slept if before_s > 5.2} == {10e-3}
    slept.clear()
    with pytest.raises(WaitTimeoutError):
        wait_until(lambda: False, "plan 8", 2.0)
    assert max(pause_s for _, pause_s in slept) == 500e-6


@pytest.mark.mpi(min_size=2)
def test_what_is_there_already_is_not_waited_for():
    wait_until(lambda: True, "nothing", 0.0, give_up)
    wait_for_all([], "no requests", 0.0, give_up)


@pytest.mark.mpi(min_size=2)
def test_a_timeout_names_what_was_waited_for():
    start = time.monotonic()
    with pytest.raises(WaitTimeoutError, match=r"^waited \S+ s for plan 7: .*\(train\.timeout_s sets the limit\)$"):
        wait_until(lambda: False, "plan 7", 0.05)
    assert time.monotonic() - start >= 0.05


@pytest.mark.mpi(min_size=2)
def test_a_watch_ends_a_pointless_wait():
    with pytest.raises(PointlessError):
        wait_until(lambda: False, "a thread that failed", 60.0, give_up)


@pytest.mark.mpi(min_size=2)
def test_all_requests_are_waited_for():
    comm = MPI.COMM_WORLD
    other = 1 - comm.Get_rank()
    received = np.zeros(3, dtype=np.int64)
    sent = np.asarray([1, 2, 3]) * (comm.Get_rank() + 1)
    requests = [comm.Irecv(received[i : i + 1], source=other, tag=i) for i in range(3)]
    with pytest.raises(WaitTimeoutError, match="three numbers"):
        wait_for_all(requests, "three numbers", 0.01)
    comm.Barrier()  # nobody sends before both have given up once
    requests += [comm.Isend(sent[i : i + 1], dest=other, tag=i) for i in range(3)]
    wait_for_all(requests, "three numbers", 30.0)
    assert received.tolist() == [other + 1, 2 * (other + 1), 3 * (other + 1)]


@pytest.mark.mpi(min_size=2)
def test_a_barrier_waits_for_all():
    comm = MPI.COMM_WORLD.Dup()
    if comm.Get_rank() == 0:
        assert comm.recv(source=1) == "about to come"
        wait_for_barrier(comm, "rank 1", 30.0)
        comm.Free()
        return
    request = comm.Ibarrier()
    assert not any(request.Test() for _ in range(100))
    comm.send("about to come", dest=0)
    wait_for_all([request], "rank 0", 30.0)
    comm.Free()


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
        serve_until_barrier(comm, count, Polls(poll_interval_s))
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
def test_a_server_that_moves_rows_on_polls_again_at_once(monkeypatch):
    """But not for ever: others may want the core."""
    comm = MPI.COMM_WORLD.Dup()
    slept, polled, moving = [], [], range(10, 15)

    def answer() -> Answered:
        polled.append(len(slept))
        if len(polled) - 1 in moving:
            return Answered.MOVED
        return Answered.WAITING if len(polled) < 30 else Answered.NOTHING

    comm.Barrier()
    with monkeypatch.context() as patched:
        patched.setattr(waiting.time, "sleep", slept.append)
        patched.setattr(waiting, "_MOST_MOVING", 3)
        serve_until_barrier(comm, answer, Polls(0.01))
    assert [after - before for before, after in pairwise(polled[9:17])] == [1, 0, 0, 0, 1, 0, 1]
    comm.Free()


@pytest.mark.mpi(min_size=2)
def test_a_server_with_a_core_of_its_own_spins(monkeypatch):
    """It never sleeps. How often it polls depends on who else wants the core, which MPI may yield at each poll."""
    is_server = MPI.COMM_WORLD.Get_rank() == 0
    sleeps = []
    with monkeypatch.context() as patched:
        if is_server:
            patched.setattr(time, "sleep", sleeps.append)
        polls_until_the_other_comes(lambda: False, poll_interval_s=0.0)
    assert not sleeps


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("is_native", [True, False])
def test_a_server_that_nobody_asks_sleeps_through(is_native):
    """Native code sees that the others have come; without, the server polls as often as it may sleep."""
    comm = MPI.COMM_WORLD.Dup()
    sleeps = BarrierSleeps(open_watch("auto") if is_native else PausingWatch())
    polled = []
    comm.Barrier()
    start = time.monotonic()
    if comm.Get_rank() == 0:
        serve_until_barrier(comm, lambda: Answered.NOTHING, Polls(1e-3, lambda: polled.append(1), sleeps))
    else:
        time.sleep(LATE_S)
        wait_for_barrier(comm, "the server", TIMEOUT_S)
    seconds = time.monotonic() - start
    if comm.Get_rank() == 0:
        assert 4 <= len(polled) <= (4 + seconds / 20e-3 if is_native else 10 + seconds / 1e-3)
    comm.Free()


@pytest.mark.mpi(min_size=2)
def test_work_that_is_there_is_done_before_the_barrier_opens():
    """All others may have come: what has been asked is still answered."""
    left = [50]

    def answer() -> bool:
        left[0] -= left[0] > 0
        return left[0] > 0

    comm = MPI.COMM_WORLD
    serve_until_barrier(comm, answer, Polls(0.01))
    assert left == [0]
