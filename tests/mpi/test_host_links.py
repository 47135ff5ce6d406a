"""The doctor's measurements between hosts; each rank of this machine stands for a host."""

import time

import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi import host_links
from bagpipe_hpc.mpi.host_links import probe_links
from bagpipe_hpc.mpi.host_world import HostWorld


@pytest.mark.mpi(min_size=3)
def test_every_pair_is_measured():
    comm = MPI.COMM_WORLD.Dup()
    found = probe_links(comm, ["a", "b", "c"], timeout_s=30.0)
    if comm.Get_rank() == 0:
        assert [(probe.first, probe.second) for probe in found] == [("a", "b"), ("a", "c"), ("b", "c")]
        for probe in found:
            assert probe.one_sided
            assert 0.0 < probe.latency_s < 1.0
            assert probe.bytes_per_s > 1e6
            assert abs(probe.clock_s) < 0.5  # it is the same clock
    comm.Free()


@pytest.mark.mpi(min_size=2)
def test_wrong_numbers_are_noticed(monkeypatch):
    """One that was put to another place than where it is looked for."""
    monkeypatch.setattr(host_links.np, "array_equal", lambda put, got: bool((put + 1 == got).all()))
    comm = MPI.COMM_WORLD.Dup()
    found = probe_links(comm, ["a", "b"], timeout_s=30.0)
    if comm.Get_rank() == 0:
        assert [probe.one_sided for probe in found] == [False]
    comm.Free()


@pytest.mark.mpi(min_size=2)
def test_a_host_that_is_silent_is_named():
    comm = MPI.COMM_WORLD.Dup()
    if comm.Get_rank() == 0:
        silent = comm.Irecv(bytearray(1), source=1)
        with pytest.raises(WaitTimeoutError, match="waited 0 s for b to answer a: the link is cut, a firewall"):
            host_links._wait(silent, "b to answer a", 0.1)
    else:
        time.sleep(0.5)
        comm.Send(bytearray(1), dest=0)
    comm.Barrier()


@pytest.mark.mpi(min_size=3)
def test_ranks_of_a_host_have_one_speaker():
    with HostWorld(30.0) as world:
        assert world.ranks_on_host == world.size == 3
        assert world.is_first_of_host == (MPI.COMM_WORLD.Get_rank() == 0)
        assert world.host_names == [world.host]
        gathered = world.gather_hosts(7)
        assert gathered == ([7] if world.is_first_of_host else None)
        assert world.thread_level == "multiple"
