"""Waits end when the thing happens, when it has become pointless, or by name when it takes too long."""

import time

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.waiting import wait_for_all, wait_for_barrier, wait_until


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
