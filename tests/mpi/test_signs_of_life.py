"""Whoever waits for hours hears that the others live, and gives up when it hears nothing."""

import time

import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.progress import serve_until_barrier
from bagpipe_hpc.mpi.signs_of_life import LifeWatch, SignsOfLife
from bagpipe_hpc.mpi.waiting import wait_for_barrier

LIMIT_S = 1.0
TIMEOUT_S = 30.0


def is_sender(comm: MPI.Comm) -> bool:
    return comm.Get_rank() == 0


def idle() -> bool:
    """A server that nobody asks."""
    return False


@pytest.mark.mpi(min_size=3)
def test_a_server_waits_as_long_as_it_hears_signs(comm):
    """Twice the limit; afterwards no message is left for another wait to trip over."""
    for _ in range(2):
        if is_sender(comm):
            with SignsOfLife(comm, range(1, comm.Get_size()), LIMIT_S) as signs:
                time.sleep(2 * LIMIT_S)
                wait_for_barrier(comm, "the servers", TIMEOUT_S)
            signs.say_last()
        else:
            watch = LifeWatch(comm, 0, "the oracle", LIMIT_S)
            serve_until_barrier(comm, idle, 0.01, watch.check)
            watch.finish()
    comm.Barrier()
    assert not comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)


@pytest.mark.mpi(min_size=3)
def test_a_server_gives_up_when_it_hears_nothing(comm):
    if not is_sender(comm):
        watch = LifeWatch(comm, 0, "the oracle", LIMIT_S)
        start = time.monotonic()
        with pytest.raises(WaitTimeoutError, match="waited 1 s for a sign of life from the oracle"):
            serve_until_barrier(comm, idle, 0.01, watch.check)
        assert time.monotonic() - start >= LIMIT_S
        comm.send(None, 0)
    else:
        for server in range(1, comm.Get_size()):
            comm.recv(source=server)
        wait_for_barrier(comm, "the servers, which have entered it and given up", TIMEOUT_S)
    comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_server_that_was_busy_hears_what_came_meanwhile(comm):
    """It copies rows for longer than the limit: the silence was its own."""
    if is_sender(comm):
        with SignsOfLife(comm, range(1, comm.Get_size()), LIMIT_S) as signs:
            wait_for_barrier(comm, "the servers", TIMEOUT_S)
        signs.say_last()
    else:
        watch = LifeWatch(comm, 0, "the oracle", LIMIT_S)
        time.sleep(1.5 * LIMIT_S)
        watch.check()
        wait_for_barrier(comm, "the oracle", TIMEOUT_S)
        watch.finish()
