"""The movers' barrier opens when all have come, once, and says who waits for what."""

from types import SimpleNamespace

import pytest

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi import patience
from bagpipe_hpc.mpi.group_barrier import GroupBarrier
from bagpipe_hpc.mpi.waiting import wait_until


@pytest.mark.mpi(min_size=3)
def test_it_opens_once_for_each_time_that_all_have_come(comm):
    barrier = GroupBarrier(comm, timeout_s=30.0)
    assert not barrier.poll()
    assert barrier.awaited() == []
    for late in (0, 2, 1):
        if comm.Get_rank() == late:
            for other in {0, 1, 2} - {late}:
                comm.recv(source=other)
            barrier.enter("a group")
        else:
            barrier.enter("a group")
            assert not any(barrier.poll() for _ in range(50))
            comm.send(None, dest=late)
        assert barrier.is_entered
        assert [len(requests) for requests in barrier.awaited()] == [1]
        wait_until(barrier.poll, "the group", 30.0)
        assert not barrier.is_entered
        assert barrier.awaited() == []
        assert not barrier.poll()


@pytest.mark.mpi(min_size=3)
def test_a_missing_mover_is_noticed(comm):
    barrier = GroupBarrier(comm, timeout_s=0.05)
    if comm.Get_rank() == 0:
        for other in (1, 2):
            comm.recv(source=other)
        barrier.enter("group 4 after batch 7")
    else:
        barrier.enter("group 4 after batch 7")
        expected = r"waited \S+ s for the other trainers to write back group 4 after batch 7"
        with pytest.raises(WaitTimeoutError, match=expected):
            wait_until(barrier.poll, "the timeout", 30.0)
        comm.send(None, dest=0)
    wait_until(lambda: not barrier.is_entered or arrived(barrier), "rank 0 after all", 30.0)


@pytest.mark.mpi(min_size=3)
def test_each_group_has_the_whole_time(comm, monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now_s))
    barrier = GroupBarrier(comm, timeout_s=10.0)
    for start_s in (0.0, 100.0):
        now_s = start_s
        if comm.Get_rank() == 0:
            for other in (1, 2):
                comm.recv(source=other)
            barrier.enter("a group")
        else:
            barrier.enter("a group")
            for _ in range(10):
                now_s += 1.0
                assert not barrier.poll()
            comm.send(None, dest=0)
        wait_until(barrier.poll, "the group", 30.0)


def arrived(barrier: GroupBarrier) -> bool:
    """Poll beyond the time limit."""
    try:
        return barrier.poll()
    except WaitTimeoutError:
        return False
