"""Refuses to allocate what a host cannot hold, before the system has to kill a rank for it."""

import socket

from mpi4py import MPI

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.host_memory import free_bytes, free_shared_bytes
from bagpipe_hpc.server_memory import HostNeed, memory_problem


def require_memory(comm: MPI.Comm, tables_bytes: int, private_bytes: int) -> None:
    """Check that what all ranks allocate fits their hosts. Collective over: `comm`.

    Args:
        comm: all ranks that allocate.
        tables_bytes: rows that this rank is about to hold as a server, in memory that its host's ranks share.
        private_bytes: what else it is about to allocate: row cache, planner.

    Raises:
        CapacityError: on every rank alike; names the host, what its ranks need and what it has, and what would do.
    """
    entry = (socket.gethostname(), tables_bytes, private_bytes, free_bytes(), free_shared_bytes())
    entries = comm.allgather(entry)
    needs = []
    for host in sorted({name for name, *_ in entries}):
        ranks = [sizes for name, *sizes in entries if name == host]
        needs.append(
            HostNeed(
                name=host,
                servers=sum(rank[0] > 0 for rank in ranks),
                ranks=sum(rank[0] + rank[1] > 0 for rank in ranks),
                tables_bytes=sum(rank[0] for rank in ranks),
                private_bytes=sum(rank[1] for rank in ranks),
                free_bytes=min(rank[2] for rank in ranks),
                shared_bytes=min(rank[3] for rank in ranks),
            )
        )
    if problem := memory_problem(needs):
        raise CapacityError(problem)
