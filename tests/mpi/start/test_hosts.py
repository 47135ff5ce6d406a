"""Who shares a host, and what hosts are called."""

import socket

import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.start.hosts import Hosts, told_apart


@pytest.mark.mpi(min_size=3)
def test_ranks_of_one_host_have_one_number(comm: MPI.Intracomm) -> None:
    turned = MPI.Intracomm(comm.Split(0, -comm.Get_rank()))
    for ranks in (comm, turned):
        assert Hosts.find(ranks) == Hosts((0, 0, 0), (socket.gethostname(),) * 3)
    turned.Free()


@pytest.mark.mpi(min_size=2)
def test_hosts_of_one_name_are_told_apart() -> None:
    assert told_apart([0, 0, 2, 3], ["node", "node", "node", "other"]) == ["node#0", "node#0", "node#2", "other"]
