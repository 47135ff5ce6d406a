"""How long a mover sleeps between two rounds: until somebody rings, or until it may have something to see.

What comes of other ranks is seen only by asking MPI. Native code asks (`kernels/request_watch.py`), in a few
microseconds and without the interpreter's lock, and wakes the mover when something is there. So it asks as often as it
matters:

* While the compute thread waits for a batch, or rows and sums are under way and the mover has a core of its own, every
  30 us: that is how late it notices what came.
* Without a core of its own it asks less often while the compute thread computes: what comes then is needed when that is
  done, and each time takes the core from it.
* With nothing under way, only the compute thread can give it something to do, and rings. It looks for a plan that is
  not needed yet every 2 ms.

Where native code was not built, the mover asks itself, which takes tens of microseconds of a core, and the
interpreter's lock, from whoever computes: so it asks less often.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bagpipe_hpc.kernels.request_watch import Pauses, PausingWatch, RequestWatch
from bagpipe_hpc.mpi.requests import Awaited, handles
from bagpipe_hpc.mpi.rows.transfer import LONGEST_SLEEP_S
from bagpipe_hpc.mpi.waiting import TESTS_A_WAKE, Haste
from bagpipe_hpc.roles.request_waits import open_watch

_GROWTH = 1.5
_SHORTEST_S = 20e-6
_SHORTEST_WITHOUT_CORE_S = 200e-6
_NONE_S = 2e-3
_LONGEST_S = {Haste.SOON: LONGEST_SLEEP_S, Haste.CALM: 500e-6, Haste.NONE: _NONE_S}
_LONGEST_WITHOUT_CORE_S = {Haste.SOON: 500e-6, Haste.CALM: 1e-3, Haste.NONE: _NONE_S}
_LONGEST_LOOKING_S = {Haste.SOON: 30e-6, Haste.CALM: 100e-6, Haste.NONE: _NONE_S}
_LONGEST_LOOKING_WITHOUT_CORE_S = {Haste.SOON: 200e-6, Haste.CALM: 500e-6, Haste.NONE: _NONE_S}
_LIMIT_S = 50e-3
"""Of a wait: so often does a mover see whether something is overdue."""
_AWAITED_LIMIT_S = 1e-3
"""Of a wait while the compute thread waits, too: when that computes again, the mover shall ask less often."""


class MoverPace:
    """The sleeps of one mover, and the bell that ends them.

    Args:
        has_core: whether this trainer has a core beyond those of its compute threads; an attribute, too.
        watch: sleeps for it; one that looks at nothing unless given.
    """

    def __init__(self, *, has_core: bool, watch: RequestWatch | None = None) -> None:
        self.has_core = has_core
        self._watch = watch or PausingWatch()
        self._is_awaited = False
        self._pause_s = 0.0

    @classmethod
    def open(cls, backend: str, *, has_core: bool) -> "MoverPace":
        """One whose requests native code looks at, where that was built.

        Args:
            backend: `kernels.backend`.
            has_core: as for the class.

        Raises:
            ConfigError: native code is asked for and was not built or does not load.
        """
        return cls(has_core=has_core, watch=open_watch(backend, TESTS_A_WAKE))

    # Called by the compute thread.

    def ring(self) -> None:
        """Let the mover look at what it was given before: it goes round at least once from now on."""
        self._watch.ring()

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
        self._watch.hear()
        self._pause_s = 0.0

    def rest(self, haste: Haste, awaited: Sequence[Awaited] | None = None) -> bool:
        """Sleep until something may be there to see; whether somebody rang.

        Args:
            haste: how soon what is under way is to be seen.
            awaited: what that is; None if something is that cannot be named, so that the mover has to look.
        """
        return self._watch.wait(
            [handles(group) for group in awaited or ()], self.next_pauses(haste, is_blind=awaited is None)
        )

    def next_pauses(self, haste: Haste, *, is_blind: bool = False) -> Pauses:
        """The pauses of the next sleep, if nobody rings; longer from sleep to sleep of a round.

        Args:
            haste: as for `rest`.
            is_blind: whether the mover has to look behind each of them.
        """
        if self._is_awaited:
            haste = max(haste, Haste.CALM)
        yields_core = not (self.has_core or self._is_awaited)
        shortest_s = _SHORTEST_WITHOUT_CORE_S if yields_core else _SHORTEST_S
        if is_blind or not self._watch.looks:
            longest_s = (_LONGEST_WITHOUT_CORE_S if yields_core else _LONGEST_S)[haste]
            limit_s = 0.0
        else:
            longest_s = (_LONGEST_LOOKING_WITHOUT_CORE_S if yields_core else _LONGEST_LOOKING_S)[haste]
            limit_s = _AWAITED_LIMIT_S if self._is_awaited else _LIMIT_S
        self._pause_s = longest_s if haste is Haste.NONE else min(max(self._pause_s * _GROWTH, shortest_s), longest_s)
        return Pauses(self._pause_s, longest_s, limit_s)
