"""Waiting without burning a core: test, then sleep a little longer each time, and give up by name."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.patience import Patience
from bagpipe_hpc.mpi.requests import Awaited

_EAGER_S = 100e-6
"""So long a wait merely yields the core between tests: the shortest sleep takes as long, and many are over sooner.
Where others want the core, the first yield takes longer than that and the sleeps begin: a sleeper gets its core back
sooner than who has yielded it. `time.sleep(0)` takes 70 us, for it sets a timer."""
_SHORTEST_SLEEP_S = 20e-6
_LONGEST_SLEEP_S = 500e-6
LATE_SHARE, _BARRIER_LATE_SHARE, _MOST_LATE_S = 1 / 16, 1 / 64, 10e-3
"""Of who may be late by such a part of its wait, up to a limit, since nothing but word of others comes: while a run is
prepared, most ranks wait for the one that works, perhaps on its core. A barrier takes rounds that are each as late."""
SERVER_LATE_SHARE = 1 / 4
"""Of a server whose trainers ask for rows a batch or more before they need them. It may share their cores: a wake-up
takes 70 us (Intel Xeon at 2.0 GHz), for which the threads that compute wait."""
LONGEST_SLEEP_WITH_CORE_S = 50e-6
"""Of who has a core that nobody else wants meanwhile."""
_MOVING_S, _MOST_MOVING = 40e-6, 64
"""A test that takes so much processor time has moved a long message on; of so many one after the other some may not
have, on a slow processor. Nothing to move takes 5 to 25 us."""
TESTS_A_WAKE = 4
"""Of requests for rows, between two sleeps, at both ends: a test moves a long message on by some 40 kB and no
further (MPICH 5.0.2 over TCP), so with one test a wake the rate would be that of waking up. Four do for 10 Gbit/s;
with 16, and sleeps of 20 us, a server took 0.14 instead of 0.09 of a core over 1 Gbit/s."""
_SHORTEST_SERVER_SLEEP_S = 100e-6


class Haste(IntEnum):
    """How soon somebody who moves things on, beside other work, should come again."""

    NONE = 0
    """Nothing is under way."""
    CALM = 1
    """Within the longest sleep of those who wait."""
    SOON = 2
    """Within the shortest: its time counts."""


class Answered(IntEnum):
    """What a poll of a server has come to."""

    NOTHING = 0
    """Nobody asks."""
    WAITING = 1
    """What is asked waits for messages or for a disk."""
    MOVED = 2
    """Something has moved on, and the next poll may move it further."""


class _MovingOn:
    """Tests on end that have moved something on, behind which the next one follows at once."""

    def __init__(self) -> None:
        self._tests = 0

    def goes_on(self, *, has_moved: bool) -> bool:
        """Whether the next test follows at once."""
        goes_on = has_moved and self._tests < _MOST_MOVING
        self._tests = self._tests + 1 if goes_on else 0
        return goes_on


def nothing_to_watch() -> None:
    """The `watch` of a wait that nothing makes pointless."""


def wait_until(
    done: Callable[[], bool],
    what: str,
    timeout_s: float,
    watch: Callable[[], None] = nothing_to_watch,
    longest_sleep_s: float = _LONGEST_SLEEP_S,
    late_share: float = 0.0,
) -> None:
    """Call `done` until it returns true.

    Args:
        done: a cheap test that also lets MPI make progress. One that took long has moved a long message on, and the
            next one follows at once.
        what: what is waited for, as the error says it.
        timeout_s: seconds after which the wait fails.
        watch: called now and then; raises if the wait has become pointless, such as when another thread failed.
        longest_sleep_s: seconds between tests at most.
        late_share: of the wait so far that may lie between tests, where it is longer than that.

    Raises:
        WaitTimeoutError: it did not happen in time.
    """
    start = time.monotonic()
    while time.monotonic() < start + _EAGER_S:
        if done():
            return
        os.sched_yield()
    patience = Patience(timeout_s)
    pause_s = _SHORTEST_SLEEP_S
    moving = _MovingOn()
    while True:
        tested_s = time.thread_time()  # neither who has the core meanwhile counts, nor who has a lock
        if done():
            return
        tested_s = time.thread_time() - tested_s
        watch()
        if patience.is_over():
            raise WaitTimeoutError.after(timeout_s, what)
        if moving.goes_on(has_moved=tested_s > _MOVING_S):
            pause_s = _SHORTEST_SLEEP_S
        else:
            time.sleep(pause_s)
            late_s = min(late_share * (time.monotonic() - start), _MOST_LATE_S)
            pause_s = min(pause_s * 1.5, max(longest_sleep_s, late_s))


@dataclass(frozen=True)
class Waits:
    """How a thread waits for other ranks, time after time.

    Attributes:
        timeout_s: seconds after which a wait fails.
        watch: see `wait_until`.
        longest_sleep_s: seconds between tests at most.
    """

    timeout_s: float
    watch: Callable[[], None] = nothing_to_watch
    longest_sleep_s: float = _LONGEST_SLEEP_S

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Call `done` until it returns true; arguments and errors as for `wait_until`."""
        wait_until(done, what, self.timeout_s, self.watch, self.longest_sleep_s)


def wait_for_all(
    requests: Sequence[MPI.Request],
    what: str,
    timeout_s: float,
    watch: Callable[[], None] = nothing_to_watch,
    late_share: float = 0.0,
) -> None:
    """Wait for non-blocking operations; arguments and errors as for `wait_until`."""
    pending = list(requests)
    wait_until(lambda: MPI.Request.Testall(pending), what, timeout_s, watch, late_share=late_share)


def wait_for_barrier(comm: MPI.Comm, what: str, timeout_s: float, watch: Callable[[], None] = nothing_to_watch) -> None:
    """A barrier that leaves the core to others. Collective over: `comm`."""
    wait_for_all([comm.Ibarrier()], what, timeout_s, watch, late_share=_BARRIER_LATE_SHARE)


def _sleep(_: Awaited, pause_s: float) -> None:
    time.sleep(pause_s)


@dataclass(frozen=True)
class Polls:
    """How a server polls.

    Attributes:
        longest_sleep_s: between polls; 0 never sleeps.
        watch: called at every poll; raises if the wait has become pointless.
        sleep: is given the barrier that the server waits at, and for how many seconds. Of a server that nobody asks it
            may sleep on until all have come.
        late_share: of the time since somebody last asked that may lie between polls, where that is longer.
    """

    longest_sleep_s: float
    watch: Callable[[], None] = nothing_to_watch
    sleep: Callable[[Awaited, float], None] = _sleep
    late_share: float = 0.0


def serve_until_barrier(comm: MPI.Comm, answer: Callable[[], Answered], polls: Polls) -> None:
    """Enter a barrier and keep polling until all others have come.

    Transfers of rows proceed only while the server polls (MPI 4.1, section 12.7.3, for one-sided calls), and a blocking
    barrier would burn the core. A poll that has moved rows on is followed by the next one at once. While there is work
    the server sleeps for the shortest time only, else a little longer each time. The wait has no limit of its own, for
    it lasts as long as the trainers train.

    Args:
        comm: whose barrier.
        answer: answers what has come, without waiting.
        polls: how often.

    Collective over: `comm`.
    """
    request = comm.Ibarrier()
    pause_s, asked_s = _SHORTEST_SERVER_SLEEP_S, time.monotonic()
    moving = _MovingOn()
    while True:
        polls.watch()
        answered = answer()
        if answered:
            pause_s, asked_s = _SHORTEST_SERVER_SLEEP_S, time.monotonic()
            if moving.goes_on(has_moved=answered is Answered.MOVED):
                continue
        elif request.Test():
            return
        if polls.longest_sleep_s:
            late_s = min(polls.late_share * (time.monotonic() - asked_s), _MOST_LATE_S)
            pause_s = min(pause_s, max(polls.longest_sleep_s, late_s))
            polls.sleep([request], pause_s)
            pause_s *= 1.5
