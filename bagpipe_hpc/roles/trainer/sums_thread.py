"""A trainer's thread that moves sums of dense gradients on, and nothing else, where it has a core for that.

Elsewhere the mover does so, beside rows (`train.sums_thread`). A sum by messages has several stages, and each begins
when somebody has seen that the one before is over. This thread keeps its core while sums are under way, so it sees that
at once; and what it adds up keeps no row waiting. With nothing under way it sleeps until the compute thread rings.
"""

import logging
import threading
from typing import Protocol

from bagpipe_hpc.config.sections.train import MOVER, OWN
from bagpipe_hpc.kernels.request_watch import Pauses, RequestWatch
from bagpipe_hpc.mpi.requests import Awaited, handles
from bagpipe_hpc.mpi.waiting import TESTS_A_WAKE, Haste
from bagpipe_hpc.roles.request_waits import open_watch

log = logging.getLogger(__name__)

_CORES = 2
"""That a trainer has beside those of its compute threads, where `auto` gives sums a thread: one is the mover's."""
_AWAKE = Pauses(first_s=2e-6, longest_s=5e-6, limit_s=50e-3)
"""Between looks of native code; others want MPI's lock, too."""
_LOOKING_ITSELF = Pauses(first_s=100e-6, longest_s=100e-6, limit_s=0.0)
_UNNAMED = Pauses(first_s=1e-3, longest_s=1e-3, limit_s=0.0)
"""Where what sums go on behind cannot be named, as `DenseSums` promises, or has come since."""
_IDLE = Pauses(first_s=1.0, longest_s=1.0, limit_s=1.0)


class DenseUnderWay(Protocol):
    """Sums of dense gradients, which the compute thread starts."""

    def advance(self) -> Haste:
        """Move them on; how soon to do so again. Never waits."""

    def awaited(self) -> list[Awaited] | None:
        """What they go on behind, until `advance` is called again; None if that cannot be said."""


class SumsThread:
    """Moves sums on, from the first that has to be to `stop`; Horovod, for one, moves its own.

    Args:
        watch: waits for it, and for it alone.
        is_asked_for: whether the settings name it, so that the log says where there was nothing for it to do.
    """

    def __init__(self, watch: RequestWatch, *, is_asked_for: bool = False) -> None:
        self._watch = watch
        self._is_asked_for = is_asked_for
        self._is_over = False
        self._failure: BaseException | None = None
        self._dense: DenseUnderWay | None = None
        self._thread = threading.Thread(target=self._loop, name="sums", daemon=True)

    # Called by those who begin sums, one at a time.

    def move_on(self, dense: DenseUnderWay) -> None:
        """Say whose sums these are, before any begins; nobody else calls its `advance`."""
        self._dense = dense

    def ring(self) -> None:
        """Say that a sum has begun that has to be moved on."""
        if self._thread.ident is None:
            log.info("sums of dense gradients have a thread of their own (train.sums_thread)")
            self._thread.start()
        self._watch.ring()

    # Called by the compute thread.

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Behind the last sum: end the thread, and wait until it has."""
        self._is_over = True
        if self._thread.ident is not None:
            self._watch.ring()
            self._thread.join()
        elif self._is_asked_for:
            log.warning(
                "train.sums_thread=own changed nothing: no sum of this run had to be moved on, as with Horovod, which "
                "moves its own, with one trainer, or without a step; train.dense_sums=mpi and grid have sums to move on"
            )
        self.check()

    # The thread itself.

    def _loop(self) -> None:
        assert self._dense is not None, "sums begin behind this"
        try:
            while True:
                is_over = self._is_over  # before: what is spent until then is freed
                haste = self._dense.advance()
                if is_over:
                    return
                self._rest(self._dense, haste)
        except BaseException as failure:  # noqa: BLE001 - handed to the compute thread, which ends the job
            self._failure = failure

    def _rest(self, dense: DenseUnderWay, haste: Haste) -> None:
        """Wait until a sum may go on, or somebody rings."""
        awaited = dense.awaited()
        if haste is Haste.NONE:
            self._watch.wait([], _IDLE)
        elif not awaited:
            self._watch.wait([], _UNNAMED)
        else:
            self._watch.wait([handles(group) for group in awaited], _AWAKE if self._watch.looks else _LOOKING_ITSELF)


class SummedElsewhere:
    """What a mover has to do for sums that a thread of their own moves on: nothing."""

    def advance(self) -> Haste:
        """Nothing is under way that this one moves on."""
        return Haste.NONE

    def awaited(self) -> list[Awaited]:
        """Nothing."""
        return []


def open_sums_thread(setting: str, backend: str, cores: int) -> SumsThread | None:
    """The thread that `train.sums_thread` asks for, not yet started; None where the mover moves sums on.

    `auto` gives sums none without native code: Python that looks all the time keeps the interpreter from who computes.

    Args:
        setting: `train.sums_thread`.
        backend: `kernels.backend`.
        cores: of this trainer beside those of its compute threads.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    if setting == MOVER or (setting != OWN and cores < _CORES):
        return None
    watch = open_watch(backend, TESTS_A_WAKE)
    return SumsThread(watch, is_asked_for=setting == OWN) if setting == OWN or watch.looks else None
