"""All ranks meet, or those that do not come are named."""

import time

import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.start import roll_call
from bagpipe_hpc.mpi.start.roll_call import call_roll


@pytest.fixture
def comm():
    world = MPI.COMM_WORLD.Dup()
    yield world
    world.Barrier()
    world.Free()


@pytest.mark.mpi(min_size=3)
def test_nobody_goes_on_before_the_last_has_come(comm):
    for late in range(3):
        began = time.monotonic()
        if comm.Get_rank() == late:
            time.sleep(0.3)
        call_roll(comm, "having come", 30.0)
        assert time.monotonic() - began > 0.25


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("missing", [0, 2])
def test_who_does_not_come_is_named(comm, missing, monkeypatch):
    """By rank 0, which knows; the others know that rank 0 has not let them go on."""
    monkeypatch.setattr(roll_call, "_LATER", 1.0)
    hosts = ["node1", "node1", "node2"]
    rank = comm.Get_rank()
    if rank != missing:
        named = f"node2 \\(rank {missing}\\)" if rank == 0 else "node1 \\(rank 0\\)"
        with pytest.raises(WaitTimeoutError, match=f"^{named}: no word of having come within 0 s: a rank is stopped"):
            call_roll(comm, "having come", 0.2, hosts)


@pytest.mark.mpi(min_size=2)
def test_many_are_counted():
    error = roll_call._no_word(range(2, 14), "having come", 5.0, ["a"] * 4 + ["b"] * 10, [])
    assert str(error).startswith("a (ranks 2, 3), b (ranks 4, 5, 6, 7, 8, 9, 10, 11, 2 more): no word of")
