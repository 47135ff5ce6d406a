"""Signs of life: a rank whose wait may rightly take hours still notices that the rank it depends on has fallen silent.

One rank sends a small message every few seconds from a thread of its own: it comes as long as the process runs and the
link carries it, whatever the process is busy with.
"""

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.waiting import wait_until

TAG_ALIVE = 11
"""Of a sign: a bool, whether it is the last one."""

_LONGEST_PAUSE_S = 2.0
_SIGNS_A_LIMIT = 4
"""At least so many signs are sent within the silence that receivers bear."""
_LOOK_EVERY_S = 0.1


class SignsOfLife:
    """Sends signs of life while the body runs; a context manager.

    Args:
        comm: where no other messages have `TAG_ALIVE`.
        receivers: ranks in `comm` that take the signs.
        timeout_s: the silence that they bear.
    """

    def __init__(self, comm: MPI.Comm, receivers: Sequence[int], timeout_s: float) -> None:
        self._comm = comm
        self._receivers = receivers
        self._pause_s = min(_LONGEST_PAUSE_S, timeout_s / _SIGNS_A_LIMIT)
        self._sent: list[MPI.Request] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="signs of life", daemon=True)

    def __enter__(self) -> "SignsOfLife":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def wait_taken(self) -> None:
        """After the body: wait until the signs are taken, which receivers do before they take what is sent later."""
        MPI.Request.Waitall(self._sent)

    def say_last(self) -> None:
        """After the body: tell the receivers that no other sign comes; each calls `LifeWatch.finish`."""
        for rank in self._receivers:
            self._comm.send(True, rank, TAG_ALIVE)
        self.wait_taken()

    def _send(self) -> None:
        while not self._ended.wait(self._pause_s):
            if MPI.Request.Testall(self._sent):  # a stopped rank takes none: do not wait for it, nor pile them up
                self._sent = [self._comm.isend(False, rank, TAG_ALIVE) for rank in self._receivers]


class LifeWatch:
    """Hears the signs of one rank, beside a wait that has no limit.

    Args:
        comm: as given to `SignsOfLife`.
        sender: the rank that sends signs, in `comm`.
        name: what the error calls it.
        timeout_s: the silence to bear.
    """

    def __init__(self, comm: MPI.Comm, sender: int, name: str, timeout_s: float) -> None:
        self._comm = comm
        self._sender = sender
        self._what = f"a sign of life from {name}"
        self._timeout_s = timeout_s
        self._looked_s = time.monotonic()
        self._silent_s = 0.0
        self._has_ended = False

    def check(self) -> None:
        """Take the signs that have come; call it every now and then, however often.

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
        """Take the signs up to the last one.

        Raises:
            WaitTimeoutError: it does not come in time.
        """
        wait_until(self._hear, self._what, self._timeout_s)

    def _hear(self) -> bool:
        """Take what has come; whether the last one was among it, or before."""
        while not self._has_ended and self._comm.Iprobe(self._sender, TAG_ALIVE):
            self._has_ended = self._comm.recv(source=self._sender, tag=TAG_ALIVE)
            self._silent_s = 0.0
        return self._has_ended
