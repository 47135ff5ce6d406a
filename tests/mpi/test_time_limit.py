"""What blocks for too long ends the job; what does not is left alone."""

import time

import pytest

from bagpipe_hpc.mpi import time_limit
from bagpipe_hpc.mpi.time_limit import TimeLimit


@pytest.fixture
def aborts(monkeypatch):
    """Messages and exit codes with which the job would have been ended."""
    calls = []
    monkeypatch.setattr(time_limit, "abort_job", lambda *arguments: calls.append(arguments))
    return calls


@pytest.mark.mpi(min_size=2)
def test_a_body_in_time_does_nothing(aborts):
    with TimeLimit("the other ranks", 0.2):
        pass
    time.sleep(0.4)
    assert aborts == []


@pytest.mark.mpi(min_size=2)
def test_a_body_that_is_late_ends_the_job(aborts, caplog):
    with TimeLimit("the other ranks", 0.1):
        deadline = time.monotonic() + 20
        while not aborts and time.monotonic() < deadline:
            time.sleep(0.01)
    ((message, exit_code),) = aborts
    assert caplog.messages == [message]
    assert message.startswith("bagpipe: waited 0 s for the other ranks: a rank is stopped, the link is cut")
    assert exit_code == 1


@pytest.mark.mpi(min_size=2)
def test_who_cannot_abort_the_job_ends_in_another_way(aborts):
    ended = []
    with TimeLimit("all ranks to start MPI", 0.0, lambda *arguments: ended.append(arguments)):
        time.sleep(0.2)
    assert aborts == []
    assert [exit_code for _, exit_code in ended] == [1]
