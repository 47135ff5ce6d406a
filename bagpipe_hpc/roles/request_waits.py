"""Waits for requests of MPI at little cost to those who compute on the same cores: native code looks at them.

To wake up and test from Python takes 40 us of a core in all, and where trainers have no core besides, both of their
threads wait meanwhile. Native code takes less, but to wake up has its price as well. So who is in no hurry does it as
seldom as it can.
"""

import time

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.request_watch import LooksOfMpi, Pauses, RequestWatch, request_watch
from bagpipe_hpc.mpi.native_calls import HANDLE_BYTES, STATUS_BYTES, address_of
from bagpipe_hpc.mpi.patience import Patience
from bagpipe_hpc.mpi.requests import Awaited, are_over, handles

_LOOKS_A_WAIT = 8
"""Of who is in no hurry, in a wait that lasts as long as the one before."""
_SHORTEST_PAUSE_S = 100e-6
_LEAST_LONGEST_S, _MOST_LONGEST_S = 2e-3, 20e-3
"""Between them lies the longest pause of a wait; its first one may be shorter."""
_LONGEST_WATCH_S = 50e-3
"""Without the interpreter: so often is seen whether something is overdue."""
_GROWTH = 1.5
"""Of pauses where native code does not look."""
_LONGEST_BARRIER_PAUSE_S = 10e-3
_BARRIER_WATCH_S = 20e-3
"""Without the interpreter: so often does who waits at a barrier see what else has ended."""


def open_watch(backend: str, looks_a_pause: int = 1) -> RequestWatch:
    """What waits for one thread: native code that looks at requests, where it was built.

    Args:
        backend: `kernels.backend`.
        looks_a_pause: each moves long messages on by a part of them.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    address = address_of("MPI_Request_get_status")
    mpi = LooksOfMpi(address, HANDLE_BYTES, STATUS_BYTES) if address else None
    return request_watch(backend, mpi, looks_a_pause)


class RequestWaits:
    """Waits of a thread that is in no hurry, each in as few pauses as it can be without being much late.

    That is, as long as it is like the one before.

    Args:
        watch: of the thread that waits.
    """

    def __init__(self, watch: RequestWatch) -> None:
        self._watch = watch
        self._last_s = 0.0

    def until_complete(self, requests: Awaited, what: str, timeout_s: float) -> None:
        """Wait until all are complete, and free them.

        Args:
            requests: that no other thread frees.
            what: what is waited for, as the error says it.
            timeout_s: seconds after which the wait fails.

        Raises:
            WaitTimeoutError: it did not happen in time.
        """
        if are_over(requests):
            return
        since_s, patience = time.monotonic(), Patience(timeout_s)
        part_s = self._last_s / _LOOKS_A_WAIT
        longest_s = min(max(part_s, _LEAST_LONGEST_S), _MOST_LONGEST_S)
        pause_s = min(max(part_s, _SHORTEST_PAUSE_S), longest_s)
        while not are_over(requests):
            if patience.is_over():
                raise WaitTimeoutError.after(timeout_s, what)
            limit_s = min(patience.left_s, _LONGEST_WATCH_S)
            self._watch.wait([handles(requests)], Pauses(pause_s, longest_s, limit_s))
            pause_s = longest_s if self._watch.looks else min(_GROWTH * pause_s, longest_s)
        self._last_s = time.monotonic() - since_s


class BarrierSleeps:
    """Sleeps of who does nothing but wait at a barrier, and ends them when all have come (`mpi.waiting.Polls`).

    Args:
        watch: of the thread that waits.
    """

    longest_s = _LONGEST_BARRIER_PAUSE_S
    """Between two looks."""

    def __init__(self, watch: RequestWatch) -> None:
        self._watch = watch

    def __call__(self, barrier: Awaited, pause_s: float) -> None:
        """Sleep for so long, and on while native code sees that somebody is missing."""
        self._watch.wait([handles(barrier)], Pauses(pause_s, self.longest_s, _BARRIER_WATCH_S))
