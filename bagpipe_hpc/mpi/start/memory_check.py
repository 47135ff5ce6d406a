"""Refuses to allocate what a host cannot hold, before the system has to kill a rank for it."""

import socket
from collections.abc import Sequence

from mpi4py import MPI

from bagpipe_hpc.cluster.host_memory import free_bytes, free_shared_bytes
from bagpipe_hpc.cluster.server_memory import HostNeed, Need, memory_problem
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.mpi.start.hosts import told_apart


def require_memory(comm: MPI.Comm, need: Need, hosts: Sequence[int]) -> None:
    """Check that what all ranks allocate fits their hosts. Collective over: `comm`.

    Args:
        comm: all ranks that allocate.
        need: what this rank is about to allocate.
        hosts: number of each rank's host; equal numbers are one host, whatever hosts are called.

    Raises:
        CapacityError: on every rank alike; names the host, what its ranks need and what it has, and what would do.
    """
    entries = comm.allgather((socket.gethostname(), need, free_bytes(), free_shared_bytes()))
    names = told_apart(hosts, [name for name, *_ in entries])
    needs = []
    for host in sorted(set(names)):
        ranks = [rank for name, (_, *rank) in zip(names, entries, strict=True) if name == host]
        needs.append(
            HostNeed(
                name=host,
                servers=sum(own.tables_bytes + own.frames_bytes > 0 for own, *_ in ranks),
                ranks=sum(own.total_bytes > 0 for own, *_ in ranks),
                need=sum((own for own, *_ in ranks), Need()),
                free_bytes=min(free for _, free, _ in ranks),
                shared_bytes=min(shared for *_, shared in ranks),
            )
        )
    if problem := memory_problem(needs):
        raise CapacityError(problem)
