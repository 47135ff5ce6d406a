"""A limit for calls of MPI that block: they have none of their own, and wait for a rank that is cut off for good."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from bagpipe_hpc.mpi.start.world import abort_job
from bagpipe_hpc.terminal import IN_FILE_ONLY

log = logging.getLogger(__name__)

NETWORK_CURE = (
    "the link is cut, a firewall is in the way, or MPI uses another network interface there (MPICH: HYDRA_IFACE; "
    "Open MPI: OMPI_MCA_btl_tcp_if_include)"
)

_EXIT_CODE = 1


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
        self._timer = threading.Timer(limit_s, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        if log.hasHandlers():  # the launcher's words may not come through
            log.error(self._message, extra=IN_FILE_ONLY)
        (self._end or abort_job)(self._message, _EXIT_CODE)
