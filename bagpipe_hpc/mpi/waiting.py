"""Waiting without burning a core: test, then sleep a little longer each time, and give up by name."""

import os
import time
from collections.abc import Callable, Sequence

from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError

_EAGER_TESTS = 64
"""Tests that merely yield the core first, for about 100 us: the shortest sleep takes as long, and many waits are over
sooner. `os.sched_yield` returns at once where nobody else wants the core; `time.sleep(0)` takes 70 us."""
_SHORTEST_SLEEP_S = 20e-6
_LONGEST_SLEEP_S = 500e-6


def _nothing_to_watch() -> None:
    pass


def wait_until(
    done: Callable[[], bool],
    what: str,
    timeout_s: float,
    watch: Callable[[], None] = _nothing_to_watch,
    longest_sleep_s: float = _LONGEST_SLEEP_S,
) -> None:
    """Call `done` until it returns true.

    Args:
        done: a cheap test that also lets MPI make progress.
        what: what is waited for, as the error says it.
        timeout_s: seconds after which the wait fails.
        watch: called now and then; raises if the wait has become pointless, such as when another thread failed.
        longest_sleep_s: seconds between tests at most.

    Raises:
        WaitTimeoutError: it did not happen in time.
    """
    for _ in range(_EAGER_TESTS):
        if done():
            return
        os.sched_yield()
    deadline = time.monotonic() + timeout_s
    pause_s = _SHORTEST_SLEEP_S
    while not done():
        watch()
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"waited {timeout_s:.0f} s for {what}: a rank is stopped, or the network is down or far too slow "
                "(train.timeout_s sets the limit)"
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, longest_sleep_s)


def wait_for_all(
    requests: Sequence[MPI.Request], what: str, timeout_s: float, watch: Callable[[], None] = _nothing_to_watch
) -> None:
    """Wait for non-blocking operations; arguments and errors as for `wait_until`."""
    pending = list(requests)
    wait_until(lambda: MPI.Request.Testall(pending), what, timeout_s, watch)


def wait_for_barrier(
    comm: MPI.Comm, what: str, timeout_s: float, watch: Callable[[], None] = _nothing_to_watch
) -> None:
    """A barrier that leaves the core to others. Collective over: `comm`."""
    wait_for_all([comm.Ibarrier()], what, timeout_s, watch)
