"""Passive waiting of the embedding servers."""

import time

from mpi4py import MPI


def serve_until_barrier(comm: MPI.Comm, poll_interval_s: float) -> None:
    """Enter a barrier and keep polling MPI until all others have come.

    One-sided calls from other hosts complete only while their target polls (MPI 4.1, section 12.7.3), and a blocking
    barrier would burn the core. The wait has no limit of its own: it lasts as long as the trainers train, and they end
    the job when they stand still.

    Args:
        comm: whose barrier.
        poll_interval_s: sleep between polls; 0 spins.

    Collective over: `comm`.
    """
    request = comm.Ibarrier()
    while not request.Test():
        if poll_interval_s:
            time.sleep(poll_interval_s)
