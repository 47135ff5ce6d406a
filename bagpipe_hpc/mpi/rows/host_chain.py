"""Sums that go on from host to host, so that they are those of all trainers added in their order.

A row that is held once a host has its gradients added up by the trainer of each host that holds it. Sums that each
host made for itself and that were then added would have other bits than those of trainer after trainer. So the holder
of the first host begins, and each one takes what the one before it has, adds the gradients of its own host's trainers
to that one by one, and passes it on. The total comes back as it went. Of N hosts each link from one to the next carries
a sum once in either direction, 2 (N - 1) times its bytes in all, N - 1 messages one behind the other each way.
"""

from collections.abc import Callable, Generator

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import TESTS_A_WAKE

_TAGS = 4096
"""Sums of a kind whose messages differ in their tags; far fewer are under way at once (MPI has 32,767 at least)."""

Floats = NDArray[np.float32]
Add = Callable[[Floats | None], Floats]
"""Adds this host's gradients to what the hosts before it have, float32 of one shape; to zero if it is given None."""


class ChainedSum:
    """A sum that is under way; one thread moves it on.

    Args:
        stages: yields one operation after the other and returns the total.
    """

    def __init__(self, stages: Generator[MPI.Request, None, Floats]) -> None:
        self._stages = stages
        self._request: MPI.Request | None = None
        self._total: Floats | None = None
        self._go_on()

    def _go_on(self) -> None:
        try:
            self._request = next(self._stages)
        except StopIteration as finished:
            self._request, self._total = None, finished.value

    def is_complete(self) -> bool:
        """Whether the total is here, and all that this trainer sends has left; asked, but never waited for."""
        for _ in range(TESTS_A_WAKE):
            while self._request is not None and self._request.Test():
                self._go_on()
            if self._request is None:
                return True
        return False

    def awaited(self) -> list[Awaited]:
        """What `is_complete` goes on behind; for the thread that calls that."""
        return [] if self._request is None else [[self._request]]

    @property
    def total(self) -> Floats:
        """The sum over all hosts, once it is complete."""
        assert self._total is not None, "the sum is complete"
        return self._total


class HostChain:
    """Starts sums over hosts; all trainers that hold the same rows start the same sums in the same order.

    Args:
        comm: the trainers, in their order.
        kind: a number, 0 or 1: sums of different kinds may be started in any order, by different threads.
    """

    def __init__(self, comm: MPI.Comm, kind: int) -> None:
        self._comm = comm
        self._kind = kind
        self._started = 0

    def start(self, of_host: int, shape: tuple[int, int], add: Add) -> ChainedSum:
        """Start a sum. Between the trainers that have this one's place on their hosts.

        Args:
            of_host: trainers of each host.
            shape: of the sum.
            add: called once, by whoever asks whether the sum is complete.
        """
        number = self._started
        self._started += 1
        return ChainedSum(self._stages(number, of_host, shape, add))

    def _stages(
        self, number: int, of_host: int, shape: tuple[int, int], add: Add
    ) -> Generator[MPI.Request, None, Floats]:
        comm, own = self._comm, self._comm.Get_rank()
        before, behind = own - of_host, own + of_host
        is_first, is_last = before < 0, behind >= comm.Get_size()
        tag = 2 * (number % _TAGS) + self._kind  # either way: what goes on and what comes back have other senders
        earlier = None
        if not is_first:
            earlier = np.empty(shape, dtype=np.float32)
            yield comm.Irecv(earlier, before, tag)
        total = np.ascontiguousarray(add(earlier), dtype=np.float32)
        if not is_last:
            sent, total = total, np.empty(shape, dtype=np.float32)
            arriving = comm.Irecv(total, behind, tag)
            yield comm.Isend(sent, behind, tag)
            yield arriving
        if not is_first:
            yield comm.Isend(total, before, tag)
        return total
