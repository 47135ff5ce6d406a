"""Passive waiting of the embedding servers."""

import time
from collections.abc import Callable

from mpi4py import MPI

from bagpipe_hpc.mpi.waiting import nothing_to_watch

_SHORTEST_SLEEP_S = 100e-6


def serve_until_barrier(
    comm: MPI.Comm, answer: Callable[[], bool], poll_interval_s: float, watch: Callable[[], None] = nothing_to_watch
) -> None:
    """Enter a barrier and keep polling until all others have come.

    Transfers of rows proceed only while the server polls (MPI 4.1, section 12.7.3, for one-sided calls), and a blocking
    barrier would burn the core. While there is work the server sleeps for the shortest time only, else a little longer
    each time. The wait has no limit of its own, for it lasts as long as the trainers train.

    Args:
        comm: whose barrier.
        answer: answers what has come, without waiting; returns whether there was any work.
        poll_interval_s: longest sleep between polls; 0 never sleeps.
        watch: called at every poll; raises if the wait has become pointless.

    Collective over: `comm`.
    """
    request = comm.Ibarrier()
    pause_s = _SHORTEST_SLEEP_S
    while True:
        watch()
        if answer():
            pause_s = _SHORTEST_SLEEP_S
        elif request.Test():
            return
        if poll_interval_s:
            time.sleep(min(pause_s, poll_interval_s))
            pause_s *= 1.5
