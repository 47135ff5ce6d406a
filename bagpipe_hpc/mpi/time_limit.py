"""A limit for calls of MPI that block: they have none of their own, and wait for a rank that is cut off for good."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from bagpipe_hpc.exit_codes import EXIT_FAILED
from bagpipe_hpc.mpi.patience import LONGEST_LOOK_S, Patience
from bagpipe_hpc.mpi.start.world import abort_job
from bagpipe_hpc.terminal import IN_FILE_ONLY

log = logging.getLogger(__name__)

NETWORK_CURE = (
    "the link is cut, a firewall is in the way, or MPI uses another network interface there (MPICH: HYDRA_IFACE; "
    "Open MPI: OMPI_MCA_btl_tcp_if_include)"
)

_LOOK_EVERY_S = LONGEST_LOOK_S / 2


class TimeLimit:
    """Ends the whole job, from a thread of its own, where the body takes too long; a context manager.

    The body must let other threads run while it waits, as mpi4py's calls do, but for `Init` and `Finalize`.

    Args:
        what: what the body waits for, as the message says it.
        limit_s: seconds that it may take.
        end: ends the job with a message and an exit code; where it is not given, `abort_job`.
    """

    def __init__(self, what: str, limit_s: float, end: Callable[[str, int], object] | None = None) -> None:
        self._message = f"bagpipe: waited {limit_s:.0f} s for {what}: a rank is stopped, {NETWORK_CURE}"
        self._end = end
        self._limit_s = limit_s
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="time limit", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_done.set()

    def _watch(self) -> None:
        patience = Patience(self._limit_s)
        while not self._is_done.wait(max(0.0, min(patience.left_s, _LOOK_EVERY_S))):
            if patience.is_over():
                self._expire()
                return

    def _expire(self) -> None:
        if log.hasHandlers():  # the launcher's words may not come through
            log.error(self._message, extra=IN_FILE_ONLY)
        (self._end or abort_job)(self._message, EXIT_FAILED)
