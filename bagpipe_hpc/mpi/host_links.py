"""What lies between hosts: latency, bandwidth, one-sided access and clocks, measured pair by pair.

One rank a host takes part. Only the two of a pair work at a time, so that the pairs do not share links.
"""

import time
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.patience import Patience
from bagpipe_hpc.mpi.time_limit import NETWORK_CURE, TimeLimit

_PINGS = 100
_LONG_BYTES = 4 << 20
_LONG_MESSAGES = 8
_WINDOW_NUMBERS = 4096
_TAG_PING, _TAG_LONG, _TAG_DONE = 1, 2, 3


@dataclass(frozen=True)
class LinkProbe:
    """What a pair of hosts measured.

    Attributes:
        first: the one host, which asks.
        second: the other, which answers.
        latency_s: half of a round trip of 8 bytes, median.
        bytes_per_s: of long messages from the first host to the second.
        clock_s: how far the second host's clock is ahead.
        one_sided: whether what was put to the second host's memory was got back from there unchanged.
    """

    first: str
    second: str
    latency_s: float
    bytes_per_s: float
    clock_s: float
    one_sided: bool


def probe_links(comm: MPI.Intracomm, names: list[str], timeout_s: float) -> list[LinkProbe]:
    """Measure every pair. Collective over: `comm`, one rank a host.

    Args:
        comm: the ranks that take part.
        names: name of each one's host.
        timeout_s: longest wait for an answer.

    Returns:
        On rank 0 all pairs, elsewhere those that the rank was the first of.

    Raises:
        WaitTimeoutError: a host did not answer; the message names both. Where a call blocks, the job is ended instead.
    """
    rank, found = comm.Get_rank(), []
    memory = np.zeros(_WINDOW_NUMBERS, dtype=np.float32)
    with TimeLimit("the hosts to open a window", timeout_s):
        window = MPI.Win.Create(memory, memory.itemsize, comm=comm)
        window.Lock_all()
    for first in range(comm.Get_size()):
        for second in range(first + 1, comm.Get_size()):
            pair = _Pair(comm, window, names, first, second, timeout_s)
            if rank == first:
                found.append(pair.ask())
            elif rank == second:
                pair.answer()
            _wait(comm.Ibarrier(), f"{names[first]} and {names[second]} to measure the link", 4 * timeout_s, idle=True)
    with TimeLimit("the hosts to close the window", timeout_s):
        window.Unlock_all()
        window.Free()
        gathered = comm.gather(found, root=0)
    return [probe for part in gathered for probe in part] if gathered is not None else found


class _Pair:
    """Two hosts at work."""

    def __init__(
        self, comm: MPI.Intracomm, window: MPI.Win, names: list[str], first: int, second: int, timeout_s: float
    ) -> None:
        self._comm, self._window = comm, window
        self._first, self._second = first, second
        self._names = names
        self._timeout_s = timeout_s

    def ask(self) -> LinkProbe:
        """The first host's part."""
        trips, clocks = [], []
        theirs, ping = np.empty(1), np.zeros(1)
        for _ in range(_PINGS):
            start_s, start = time.perf_counter(), time.time()
            pong = self._comm.Irecv(theirs, self._second, _TAG_PING)
            self._until(self._comm.Isend(ping, self._second, _TAG_PING), self._second)
            self._until(pong, self._second)
            trips.append(time.perf_counter() - start_s)
            clocks.append(theirs[0] - start - trips[-1] / 2)
        data = np.ones(_LONG_BYTES, dtype=np.uint8)
        start_s = time.perf_counter()
        for _ in range(_LONG_MESSAGES):
            self._until(self._comm.Isend(data, self._second, _TAG_LONG), self._second)
        self._until(self._comm.Irecv(theirs, self._second, _TAG_LONG), self._second)
        long_s = time.perf_counter() - start_s
        one_sided = self._put_and_get()
        self._until(self._comm.Isend(ping, self._second, _TAG_DONE), self._second)
        return LinkProbe(
            self._names[self._first],
            self._names[self._second],
            float(np.median(trips)) / 2,
            _LONG_MESSAGES * _LONG_BYTES / long_s,
            clocks[int(np.argmin(trips))],
            one_sided,
        )

    def _put_and_get(self) -> bool:
        """Every second number of the second host's memory, by an indexed datatype, as rows travel."""
        numbers = np.random.default_rng(self._second).random(_WINDOW_NUMBERS // 2, dtype=np.float32)
        back = np.zeros_like(numbers)
        places = MPI.FLOAT.Create_indexed_block(1, np.arange(0, _WINDOW_NUMBERS, 2, dtype=np.int32))  # type: ignore[arg-type]
        places.Commit()
        target = (0, 1, places)
        self._until(self._window.Rput([numbers, MPI.FLOAT], self._second, target), self._second)
        with TimeLimit(self._answer_of(self._second), self._timeout_s):
            self._window.Flush(self._second)
        self._until(self._window.Rget([back, MPI.FLOAT], self._second, target), self._second)
        places.Free()
        return bool(np.array_equal(numbers, back))

    def answer(self) -> None:
        """The second host's part."""
        ping, clock = np.empty(1), np.empty(1)
        for _ in range(_PINGS):
            self._until(self._comm.Irecv(ping, self._first, _TAG_PING), self._first)
            clock[0] = time.time()
            self._until(self._comm.Isend(clock, self._first, _TAG_PING), self._first)
        data = np.empty(_LONG_BYTES, dtype=np.uint8)
        for _ in range(_LONG_MESSAGES):
            self._until(self._comm.Irecv(data, self._first, _TAG_LONG), self._first)
        self._until(self._comm.Isend(ping, self._first, _TAG_LONG), self._first)
        # While this waits it lets the first host's one-sided calls proceed.
        self._until(self._comm.Irecv(ping, self._first, _TAG_DONE), self._first)

    def _until(self, request: MPI.Request, other: int) -> None:
        _wait(request, self._answer_of(other), self._timeout_s)

    def _answer_of(self, other: int) -> str:
        own = self._second if other == self._first else self._first
        return f"{self._names[other]} to answer {self._names[own]}"


def _wait(request: MPI.Request, what: str, timeout_s: float, *, idle: bool = False) -> None:
    """Wait for an operation, at full speed unless the rank merely waits for others.

    Raises:
        WaitTimeoutError: it did not complete in time.
    """
    patience = Patience(timeout_s)
    while not request.Test():
        if patience.is_over():
            raise WaitTimeoutError(f"waited {timeout_s:.0f} s for {what}: {NETWORK_CURE}")
        if idle:
            time.sleep(1e-3)
