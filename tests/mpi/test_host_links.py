"""The doctor's measurements between hosts; each rank of this machine stands for a host."""

import time

import numpy as np
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


class LosingWindow:
    """A window that loses one of the numbers that were put, before they are got back."""

    def __init__(self, window: MPI.Win) -> None:
        self.Rput, self.Rget = window.Rput, window.Rget
        self._window = window

    def Flush(self, rank: int) -> None:  # noqa: N802 - MPI's name
        self._window.Flush(rank)
        self._window.Put([np.full(1, 7.0, np.float32), MPI.FLOAT], rank, (20, 1, MPI.FLOAT))
        self._window.Flush(rank)


@pytest.mark.mpi(min_size=2)
def test_wrong_numbers_are_noticed(monkeypatch):
    put_and_get = host_links._Pair._put_and_get

    def losing(pair: host_links._Pair) -> bool:
        pair._window = LosingWindow(pair._window)
        return put_and_get(pair)

    monkeypatch.setattr(host_links._Pair, "_put_and_get", losing)
    comm = MPI.COMM_WORLD.Dup()
    found = probe_links(comm, ["a", "b"], timeout_s=30.0)
    if comm.Get_rank() == 0:
        assert [probe.one_sided for probe in found] == [False]
    comm.Free()


class HandClock:
    """A clock that moves by hand: of 100 round trips the first takes 2 s, the others 6 s, and so do long messages."""

    monotonic, sleep = time.monotonic, time.sleep

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._elapsed_s = (second for trip in range(200) for second in (0.0, 2.0 if trip == 0 else 6.0))

    def time(self) -> float:
        return self._now_s

    def perf_counter(self) -> float:
        return next(self._elapsed_s)


@pytest.mark.mpi(min_size=2)
def test_measures_are_those_of_the_clocks(monkeypatch):
    """The quickest of the round trips says most of how far the clocks are apart."""
    comm = MPI.COMM_WORLD.Dup()
    monkeypatch.setattr(host_links, "time", HandClock(1000.0 + 50.0 * comm.Get_rank()))
    found = probe_links(comm, ["a", "b"], timeout_s=30.0)
    if comm.Get_rank() == 0:
        (probe,) = found
        assert probe.latency_s == 3.0
        assert probe.clock_s == 49.0
        assert probe.bytes_per_s == pytest.approx(8 * (4 << 20) / 6)
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
