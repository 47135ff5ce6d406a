"""Refuses to allocate what a host cannot hold, before the system has to kill a rank for it."""

import socket
from pathlib import Path

import psutil
from mpi4py import MPI

from bagpipe_hpc.errors import CapacityError

_SHARED_MEMORY = Path("/dev/shm")
"""Where MPI libraries place windows that the ranks of a host share."""


def require_memory(comm: MPI.Comm, needed_bytes: int) -> None:
    """Check that what all ranks allocate fits their hosts. Collective over: `comm`.

    Args:
        comm: all ranks that allocate.
        needed_bytes: what this rank is about to allocate.

    Raises:
        CapacityError: on every rank alike; names the host, what its ranks need and what it has.
    """
    entries = comm.allgather((socket.gethostname(), needed_bytes, _available_bytes()))
    hosts = sorted({host for host, _, _ in entries})
    for host in hosts:
        needed = sum(size for name, size, _ in entries if name == host)
        available = min(free for name, _, free in entries if name == host)
        if needed > available:
            holders = sum(size > 0 for name, size, _ in entries if name == host)
            raise CapacityError(
                f"tables, row caches and planner need {needed / 1e9:.1f} GB on {host} ({holders} ranks), which has "
                f"{available / 1e9:.1f} GB free (of memory and of {_SHARED_MEMORY}): use more hosts, a smaller "
                "model.embedding_dim, a shorter lookahead.batches, or fewer rows (bagpipe prepare --min-count "
                "or --max-rows-per-table)"
            )


def _available_bytes() -> int:
    available: int = psutil.virtual_memory().available
    if _SHARED_MEMORY.is_dir():
        available = min(available, psutil.disk_usage(str(_SHARED_MEMORY)).free)
    return available
