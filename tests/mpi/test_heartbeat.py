"""Whoever waits for hours hears that the others live, and gives up when it hears nothing."""

import time

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.heartbeat import TAG_ALIVE, HeartbeatCounter, HeartbeatMonitor, HeartbeatSender
from bagpipe_hpc.mpi.waiting import Polls, serve_until_barrier, wait_for_all, wait_for_barrier, wait_until

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
            with HeartbeatSender(comm, range(1, comm.Get_size()), LIMIT_S) as heartbeats:
                time.sleep(2 * LIMIT_S)
                wait_for_barrier(comm, "the servers", TIMEOUT_S)
            heartbeats.send_last()
        else:
            watch = HeartbeatMonitor(comm, 0, "the oracle", LIMIT_S)
            serve_until_barrier(comm, idle, Polls(0.01, watch.check))
            watch.finish()
    comm.Barrier()
    assert not comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)


@pytest.mark.mpi(min_size=3)
def test_a_server_gives_up_when_it_hears_nothing(comm):
    if not is_sender(comm):
        watch = HeartbeatMonitor(comm, 0, "the oracle", LIMIT_S)
        start = time.monotonic()
        with pytest.raises(WaitTimeoutError, match="waited 1 s for a heartbeat from the oracle"):
            serve_until_barrier(comm, idle, Polls(0.01, watch.check))
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
        with HeartbeatSender(comm, range(1, comm.Get_size()), LIMIT_S) as heartbeats:
            wait_for_barrier(comm, "the servers", TIMEOUT_S)
        heartbeats.send_last()
    else:
        watch = HeartbeatMonitor(comm, 0, "the oracle", LIMIT_S)
        time.sleep(1.5 * LIMIT_S)
        watch.check()
        wait_for_barrier(comm, "the oracle", TIMEOUT_S)
        watch.finish()


@pytest.mark.mpi(min_size=3)
def test_signs_do_not_queue_up_behind_what_a_stopped_rank_does_not_take(comm):
    """MPICH has 64 cells for all messages to ranks of a host; the last rank, as if stopped, holds them."""
    stopped, plans = 2, [np.zeros(8000, dtype=np.uint8) for _ in range(100)]
    with HeartbeatCounter(comm, (0, 0, 0), TIMEOUT_S) as counter:
        if is_sender(comm):
            with HeartbeatSender(comm, [1], LIMIT_S, counter) as heartbeats:
                sent = [comm.Isend(plan, stopped) for plan in plans]
                time.sleep(2.5 * LIMIT_S)
                wait_for_all(sent, "the plans to be taken", TIMEOUT_S)
                wait_for_barrier(comm, "the others", TIMEOUT_S)
            heartbeats.send_last()
        elif comm.Get_rank() == stopped:
            time.sleep(2.5 * LIMIT_S)
            for plan in plans:
                comm.Recv(plan, 0)
            wait_for_barrier(comm, "the others", TIMEOUT_S)
        else:
            watch = HeartbeatMonitor(comm, 0, "the oracle", LIMIT_S, counter)
            serve_until_barrier(comm, idle, Polls(0.01, watch.check))
            watch.finish()
        comm.Barrier()


@pytest.mark.mpi(min_size=3)
def test_a_server_of_the_same_host_gives_up_when_the_count_stands_still(comm):
    with HeartbeatCounter(comm, (0, 0, 2), TIMEOUT_S) as counter:
        assert counter.receivers == [1]
        if comm.Get_rank() == 1:
            watch = HeartbeatMonitor(comm, 0, "the oracle", LIMIT_S, counter)
            with pytest.raises(WaitTimeoutError, match="waited 1 s for a heartbeat from the oracle"):
                wait_until(lambda: watch.check() or False, "its patience to end", TIMEOUT_S)
        wait_for_barrier(comm, "the server to give up", TIMEOUT_S)


@pytest.mark.mpi(min_size=2)
def test_signs_that_are_not_taken_do_not_pile_up(comm):
    """They would take the cells of the others' messages."""
    if is_sender(comm):
        with HeartbeatSender(comm, [1], LIMIT_S) as heartbeats:
            time.sleep(LIMIT_S)  # four heartbeats' time
        wait_for_barrier(comm, "the receiver, which counts", TIMEOUT_S)
        heartbeats.wait_taken()
        return
    wait_for_barrier(comm, "the sender", TIMEOUT_S)
    taken = 0
    while comm.Iprobe(0, TAG_ALIVE):
        comm.recv(source=0, tag=TAG_ALIVE)
        taken += 1
    assert taken == 1
