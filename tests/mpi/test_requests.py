"""A thread that watches requests natively sees them complete, moves them on alone, and frees none."""

import threading

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.kernels.request_watch import NativeWatch, Pauses
from bagpipe_hpc.mpi.requests import SpentRequests, handles
from bagpipe_hpc.mpi.waiting import wait_until
from bagpipe_hpc.roles.request_waits import open_watch

TIMEOUT_S = 60.0
PAUSES = Pauses(20e-6, 30e-6, TIMEOUT_S)


@pytest.fixture
def watch() -> NativeWatch:
    opened = open_watch("auto", 4)
    assert isinstance(opened, NativeWatch), "mpi4py's own library has loaded MPI"
    return opened


@pytest.mark.mpi(min_size=2)
def test_who_watches_moves_long_messages_on(comm, watch):
    """Both ways at once, and nobody but native code asks MPI for anything meanwhile."""
    rank, other = comm.Get_rank(), comm.Get_rank() ^ 1
    if rank > 1:
        return
    for numbers in (1, 1 << 21):
        sent, taken = np.full(numbers, rank, dtype=np.int64), np.full(numbers, -1, dtype=np.int64)
        requests = [comm.Irecv(taken, other), comm.Isend(sent, other)]
        assert not watch.wait([handles(requests)], PAUSES)
        assert (taken == other).all()
        assert [bool(request) for request in requests] == [True, True], "they are freed by who tests them"
        assert MPI.Request.Testall(requests)


@pytest.mark.mpi(min_size=2)
def test_a_watch_wakes_for_the_group_that_is_complete(comm, watch):
    """And not for one of which a part is; a ring ends it where none is."""
    if comm.Get_rank() == 1:
        comm.Send(np.zeros(1), 0, tag=1)
        comm.Recv(np.empty(1), 0, tag=5)
        comm.Send(np.zeros(1), 0, tag=2)
        comm.Recv(np.empty(1), 0, tag=5)
        comm.Send(np.zeros(1), 0, tag=3)
    elif comm.Get_rank() == 0:
        first, second, never = (comm.Irecv(np.empty(1), 1, tag=tag) for tag in (1, 2, 3))
        assert not watch.wait([handles([first])], PAUSES)
        bell = threading.Timer(0.1, watch.ring)
        bell.start()
        assert watch.wait([handles([first, second]), handles([never])], PAUSES), (
            "a part is complete, and rung was later"
        )
        bell.join()
        comm.Send(np.zeros(1), 1, tag=5)
        assert not watch.wait([handles([never]), handles([first, second])], PAUSES)
        assert not never.Get_status()
        comm.Send(np.zeros(1), 1, tag=5)
        MPI.Request.Waitall([first, second, never])


@pytest.mark.mpi(min_size=2)
def test_a_request_that_another_thread_sees_complete_stays_until_it_is_freed(comm, watch):
    """It may be watched meanwhile, which ends at once, and freed twice."""
    if comm.Get_rank() == 1:
        comm.Send(np.zeros(1), 0)
    elif comm.Get_rank() == 0:
        spent, request = SpentRequests(), comm.Irecv(np.empty(1), 1)
        seen: list[bool] = []

        def see() -> None:
            wait_until(lambda: spent.is_over(request), "the message", TIMEOUT_S)
            seen.append(spent.is_over(request))

        other = threading.Thread(target=see)
        other.start()
        assert not watch.wait([handles([request])], PAUSES)
        other.join()
        assert seen == [True]
        assert request, "a handle that is looked at is never freed"
        assert not watch.wait([handles([request])], PAUSES)
        spent.free()
        assert not request
