"""How long a mover sleeps between two rounds: until somebody rings, or until it may have something to see.

What comes of other ranks is seen only by asking MPI, and each round of that takes tens of microseconds of a core, and
the interpreter's lock, from whoever computes. So a mover asks as often as it matters:

* While the compute thread waits for a batch, or rows and sums are under way and the mover has a core of its own, it
  sleeps 0.1 ms at most: that is how late it notices what came.
* Without a core of its own it sleeps 0.5 ms at most while the compute thread computes, and 1 ms for what is less urgent
  (`Haste`): what comes then is needed when that is done, and every round makes that later.
* With nothing under way, only the compute thread can give it something to do, and rings. It looks for a plan that is
  not needed yet every 2 ms.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bagpipe_hpc.mpi.rows.transfer import LONGEST_SLEEP_S
from bagpipe_hpc.mpi.waiting import Haste

_GROWTH = 1.5
_SHORTEST_S = 20e-6
_LONGEST_S = {Haste.SOON: LONGEST_SLEEP_S, Haste.CALM: 500e-6, Haste.NONE: 2e-3}
_SHORTEST_WITHOUT_CORE_S = 200e-6
_LONGEST_WITHOUT_CORE_S = {Haste.SOON: 500e-6, Haste.CALM: 1e-3, Haste.NONE: 2e-3}


class MoverPace:
    """The sleeps of one mover, and the bell that ends them.

    Args:
        has_core: whether this trainer has a core beyond those of its compute threads.
    """

    def __init__(self, *, has_core: bool) -> None:
        self._has_core = has_core
        self._is_awaited = False
        self._pause_s = 0.0
        self._silence = threading.Lock()
        self._silence.acquire()

    # Called by the compute thread.

    def ring(self) -> None:
        """Let the mover look at what it was given before: it goes round at least once from now on."""
        try:
            self._silence.release()
        except RuntimeError:  # rung already, and not yet heard
            return

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """In the body the compute thread can do nothing before the mover has done its work."""
        self._is_awaited = True
        self.ring()
        try:
            yield
        finally:
            self._is_awaited = False

    # Called by the mover.

    def begin_round(self) -> None:
        """What was rung for until here is seen in the round that begins; more may follow it soon."""
        self._silence.acquire(blocking=False)
        self._pause_s = 0.0

    def rest(self, haste: Haste) -> bool:
        """Sleep, a little longer each time from a round on; whether somebody rang."""
        return self._silence.acquire(timeout=self.next_pause_s(haste))

    def next_pause_s(self, haste: Haste) -> float:
        """Seconds of the next sleep, if nobody rings."""
        if self._is_awaited:
            haste = max(haste, Haste.CALM)
        yields_core = not (self._has_core or self._is_awaited)
        shortest_s = _SHORTEST_WITHOUT_CORE_S if yields_core else _SHORTEST_S
        longest_s = (_LONGEST_WITHOUT_CORE_S if yields_core else _LONGEST_S)[haste]
        self._pause_s = longest_s if haste is Haste.NONE else min(max(self._pause_s * _GROWTH, shortest_s), longest_s)
        return self._pause_s
