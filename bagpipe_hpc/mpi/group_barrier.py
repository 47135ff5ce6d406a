"""The movers' barrier: says when a retired group is at the servers, without waiting."""

from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.patience import Patience
from bagpipe_hpc.mpi.requests import Awaited


class GroupBarrier:
    """One barrier at a time, entered by all movers in the order of the groups.

    Args:
        comm: the movers' communicator.
        timeout_s: longest time from entering until all have come.
    """

    def __init__(self, comm: MPI.Comm, timeout_s: float) -> None:
        self._comm = comm
        self._timeout_s = timeout_s
        self._request: MPI.Request | None = None
        self._patience = Patience(timeout_s)
        self._what = ""

    @property
    def is_entered(self) -> bool:
        """Whether this mover has come and not yet seen all others come."""
        return self._request is not None

    def enter(self, what: str) -> None:
        """Come to the next barrier; everything put before must have been flushed."""
        self._request = self._comm.Ibarrier()
        self._patience = Patience(self._timeout_s)
        self._what = what

    def awaited(self) -> list[Awaited]:
        """What `poll` waits for."""
        return [] if self._request is None else [[self._request]]

    def poll(self) -> bool:
        """Whether all have come; true once for each `enter`.

        Raises:
            WaitTimeoutError: another trainer did not come in time.
        """
        if self._request is None:
            return False
        if self._request.Test():
            self._request = None
            return True
        if self._patience.is_over():
            raise WaitTimeoutError.after(self._timeout_s, f"the other trainers to write back {self._what}")
        return False
