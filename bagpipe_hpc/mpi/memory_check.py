"""Refuses to allocate what a host cannot hold, before the system has to kill a rank for it."""

import socket
from pathlib import Path

import psutil
from mpi4py import MPI

from bagpipe_hpc.errors import CapacityError

_SHARED_MEMORY = Path("/dev/shm")
"""Where MPI libraries place windows that the ranks of a host share; a rank that outgrows it dies of SIGBUS."""


def require_memory(comm: MPI.Comm, tables_bytes: int, private_bytes: int) -> None:
    """Check that what all ranks allocate fits their hosts. Collective over: `comm`.

    Args:
        comm: all ranks that allocate.
        tables_bytes: rows that this rank is about to hold as a server, in memory that its host's ranks share.
        private_bytes: what else it is about to allocate: row cache, planner.

    Raises:
        CapacityError: on every rank alike; names the host, what its ranks need and what it has.
    """
    entry = (socket.gethostname(), tables_bytes, private_bytes, available_bytes(), _available_shared_bytes())
    entries = comm.allgather(entry)
    for host in sorted({name for name, *_ in entries}):
        ranks = [sizes for name, *sizes in entries if name == host]
        tables = sum(size for size, *_ in ranks)
        needed = tables + sum(size for _, size, *_ in ranks)
        free, shared_free = min(rank[2] for rank in ranks), min(rank[3] for rank in ranks)
        if needed > free:
            holders = sum(rank[0] + rank[1] > 0 for rank in ranks)
            raise CapacityError(
                f"tables, row caches and planner need {needed / 1e9:.1f} GB on {host} ({holders} ranks), which has "
                f"{free / 1e9:.1f} GB free: use more hosts, a smaller model.embedding_dim, a shorter lookahead.batches "
                "or fewer rows (bagpipe prepare --min-count or --max-rows-per-table)"
            )
        if tables > shared_free:
            raise CapacityError(
                f"tables need {tables / 1e9:.1f} GB of shared memory on {host}, where {_SHARED_MEMORY} has "
                f"{shared_free / 1e9:.1f} GB free: enlarge it (mount -o remount,size=...; of a container: --shm-size), "
                "remove what others left there, or place servers on more hosts"
            )


def available_bytes() -> int:
    """Main memory of this host that is free."""
    return int(psutil.virtual_memory().available)


def _available_shared_bytes() -> int:
    return int(psutil.disk_usage(str(_SHARED_MEMORY)).free) if _SHARED_MEMORY.is_dir() else available_bytes()
