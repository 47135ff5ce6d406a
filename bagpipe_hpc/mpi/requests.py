"""Requests that one thread watches without the interpreter, while other threads may see them complete, too.

The watching thread hands the handles of requests to native code (`kernels/request_watch.py`), which looks at them by
`MPI_Request_get_status`: that frees none (MPI 4.1, section 3.7.6). No handle that is looked at may be freed meanwhile.
So a request that any thread may complete is asked in the same way, and freed by the watching thread alone, between two
watches (`SpentRequests`). `MPI_Test` would free it.
"""

from collections import deque
from collections.abc import Sequence

from mpi4py import MPI

from bagpipe_hpc.mpi.native_calls import handle_of

Awaited = Sequence[MPI.Request]
"""Requests that are waited for together."""


class SpentRequests:
    """Requests that are complete and still to be freed; any thread puts them here, one frees them."""

    def __init__(self) -> None:
        self._spent: deque[MPI.Request] = deque()

    def is_over(self, request: MPI.Request) -> bool:
        """Whether a request is complete; true once, for the request is spent then. Lets MPI move on, never waits."""
        if not request.Get_status():
            return False
        self._spent.append(request)
        return True

    def free(self) -> None:
        """Free what is spent, in the thread that watches."""
        while self._spent:
            self._spent.popleft().Test()


def are_over(awaited: Awaited) -> bool:
    """Whether requests are all complete, and if so, free them. Lets MPI move on, never waits."""
    return MPI.Request.Testall(list(awaited))


def handles(awaited: Awaited) -> list[int]:
    """The handles of requests, as whole numbers."""
    return [handle_of(request) for request in awaited]
