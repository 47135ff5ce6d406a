"""Heartbeats: a rank whose wait may rightly take hours still notices that the rank it depends on has fallen silent.

One rank sends a heartbeat every few seconds from a thread of its own, as long as the process runs, whatever it is busy
with. To ranks of its host it counts in memory that they share; to others it sends small messages. Messages alone would
not do: MPICH gives a process 64 cells of shared memory for all that it sends on its host, and while a stopped rank
holds them, messages to every other rank queue up behind.
"""

import threading
import time
from collections.abc import Sequence
from types import TracebackType

import numpy as np
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import wait_for_all, wait_until

TAG_ALIVE = 11
"""Of a heartbeat: a bool, whether it is the last one."""

_LONGEST_PAUSE_S = 2.0
_HEARTBEATS_A_LIMIT = 4
"""At least so many are sent within the silence that receivers bear."""
_LOOK_EVERY_S = 0.1


class HeartbeatCounter:
    """A count in memory that the ranks of a host share; the first rank of `comm` raises it, others of its host read it.

    A context manager. Collective over `comm`: construction and its end, before which all ranks must have met.

    Args:
        comm: the ranks.
        hosts: number of the host of each rank of `comm`; equal numbers are one host.
        timeout_s: longest wait for the other ranks, here and at the end; after it the job is ended.
    """

    def __init__(self, comm: MPI.Intracomm, hosts: Sequence[int], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        rank = comm.Get_rank()
        self.receivers = [other for other in range(1, len(hosts)) if hosts[other] == hosts[0]]
        """Ranks of `comm` that read the count."""
        self.is_read_here = rank in self.receivers
        size = np.dtype(np.int64).itemsize
        with TimeLimit("the ranks of this host to share the heartbeat counter", timeout_s):
            host = MPI.Intracomm(comm.Split(hosts[rank], rank))
            self._window = MPI.Win.Allocate_shared(size if host.Get_rank() == 0 else 0, size, comm=host)
            host.Free()
        self._window.Lock_all(MPI.MODE_NOCHECK)
        memory, _ = self._window.Shared_query(0)
        self._count = np.asarray(memory).view(np.int64)
        if rank == 0:
            self._count[0] = 0

    def beat(self) -> None:
        """Raise the count; on the first rank."""
        self._count[0] += 1
        self._window.Sync()

    def read(self) -> int:
        """The count as it is now."""
        self._window.Sync()
        return int(self._count[0])

    def __enter__(self) -> "HeartbeatCounter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # after an error the other ranks do not come to a collective call: the job is aborted
            self._count = np.zeros(1, dtype=np.int64)
            with TimeLimit("the ranks of this host to give back the heartbeat counter", self._timeout_s):
                self._window.Unlock_all()
                self._window.Free()


class HeartbeatSender:
    """Sends heartbeats while the body runs; a context manager.

    Args:
        comm: where no other messages have `TAG_ALIVE`.
        receivers: ranks in `comm` that take the heartbeats.
        timeout_s: the silence that they bear.
        counter: of `comm`, where its first rank sends the heartbeats and there is one; its receivers get no messages.
    """

    def __init__(
        self, comm: MPI.Comm, receivers: Sequence[int], timeout_s: float, counter: HeartbeatCounter | None = None
    ) -> None:
        self._comm = comm
        self._counter = counter
        self._timeout_s = timeout_s
        self._pause_s = min(_LONGEST_PAUSE_S, timeout_s / _HEARTBEATS_A_LIMIT)
        counted = counter.receivers if counter else []
        self._sent: dict[int, MPI.Request] = {rank: MPI.REQUEST_NULL for rank in receivers if rank not in counted}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="heartbeats", daemon=True)

    def __enter__(self) -> "HeartbeatSender":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def wait_taken(self) -> None:
        """After the body: wait until the heartbeats are taken, which receivers do before they take what is sent later.

        Raises:
            WaitTimeoutError: a receiver did not take them in time.
        """
        wait_for_all(list(self._sent.values()), "the other ranks to take the heartbeats", self._timeout_s)

    def send_last(self) -> None:
        """After the body: tell the receivers that no other heartbeat comes; each calls `HeartbeatMonitor.finish`.

        Raises:
            WaitTimeoutError: a receiver did not take it in time.
        """
        self.wait_taken()
        self._sent = {rank: self._comm.issend(True, rank, TAG_ALIVE) for rank in self._sent}
        self.wait_taken()

    def _send(self) -> None:
        while not self._ended.wait(self._pause_s):
            if self._counter:
                self._counter.beat()
            for rank, sent in self._sent.items():
                # A stopped rank takes none: do not pile them up, nor wait for it. A synchronous message is sent when it
                # is taken, not when MPI has stored it somewhere.
                if sent.Test():
                    self._sent[rank] = self._comm.issend(False, rank, TAG_ALIVE)


class HeartbeatMonitor:
    """Hears the heartbeats of one rank, beside a wait that has no limit.

    Args:
        comm: as given to `HeartbeatSender`.
        sender: the rank that gives heartbeats, in `comm`.
        name: what the error calls it.
        timeout_s: the silence to bear.
        counter: as given to `HeartbeatSender`.
    """

    def __init__(
        self, comm: MPI.Comm, sender: int, name: str, timeout_s: float, counter: HeartbeatCounter | None = None
    ) -> None:
        self._comm = comm
        self._sender = sender
        self._counter = counter if counter and counter.is_read_here else None
        self._heard = 0
        self._what = f"a heartbeat from {name}"
        self._timeout_s = timeout_s
        self._looked_s = time.monotonic()
        self._silent_s = 0.0
        self._has_ended = False

    def check(self) -> None:
        """Take the heartbeats that have come; call it every now and then, however often.

        Raises:
            WaitTimeoutError: none has come for too long.
        """
        now = time.monotonic()
        if now - self._looked_s < _LOOK_EVERY_S:
            return
        # Silence while this rank did not look, for it wrote a file or was stopped itself, is its own.
        self._silent_s += min(now - self._looked_s, 2 * _LOOK_EVERY_S)
        self._looked_s = now
        if not self._hear() and self._silent_s > self._timeout_s:
            raise WaitTimeoutError.after(self._timeout_s, self._what)

    def finish(self) -> None:
        """Take the heartbeats up to the last one; a count has none.

        Raises:
            WaitTimeoutError: it does not come in time.
        """
        if self._counter is None:
            wait_until(self._hear, self._what, self._timeout_s)

    def _hear(self) -> bool:
        """Take what has come; whether the last one was among it, or before."""
        if self._counter:
            count = self._counter.read()
            if count != self._heard:
                self._heard, self._silent_s = count, 0.0
            return False
        while not self._has_ended and self._comm.Iprobe(self._sender, TAG_ALIVE):
            self._has_ended = self._comm.recv(source=self._sender, tag=TAG_ALIVE)
            self._silent_s = 0.0
        return self._has_ended
