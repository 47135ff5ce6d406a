"""Pauses of a thread that waits for MPI requests, until one of them is complete or another thread rings.

Native code looks at the requests between pauses, without the interpreter and its lock. The plain twin only pauses, and
its caller looks at the requests.
"""

import ctypes
import logging
import threading
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_uint32, c_void_p
from itertools import accumulate, chain
from typing import NamedTuple, Protocol

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native

log = logging.getLogger(__name__)

_MOVING_S = 1.5e-6
"""A look at a group that takes less has moved nothing on. One that takes longer has, if it takes twice as long as the
shortest one of late: with nothing to move it takes 0.2 us on a host, and 2.3 over TCP where system calls are slow."""


class Pauses(NamedTuple):
    """How often requests are looked at.

    Attributes:
        first_s: seconds of the first pause; each is half as long again as the one before. Native code sleeps through
            those of 10 us and more, and keeps its core through shorter ones.
        longest_s: seconds of the longest one.
        limit_s: seconds after which a wait ends, at the end of a pause.
    """

    first_s: float
    longest_s: float
    limit_s: float


class RequestWatch(Protocol):
    """Waits for one thread. Handles of requests are those of MPI, as whole numbers.

    Attributes:
        looks: whether it looks at requests, or its caller has to.
    """

    looks: bool

    def ring(self) -> None:
        """End the wait that is under way, or else the next one as it begins; from any thread."""

    def hear(self) -> bool:
        """Forget that somebody has rung; returns whether somebody had."""

    def wait(self, groups: Sequence[Sequence[int]], pauses: Pauses) -> bool:
        """Pause and look in turn, until all requests of a group are complete or the time is over.

        Args:
            groups: handles of requests, none of which is freed meanwhile.
            pauses: between looks.

        Returns:
            Whether somebody has rung; that is forgotten now, as by `hear`.
        """


class LooksOfMpi(NamedTuple):
    """How native code looks at a request.

    Attributes:
        get_status: address of `MPI_Request_get_status`.
        handle_bytes: of a request's handle, 4 or 8.
        status_bytes: of an `MPI_Status`.
    """

    get_status: int
    handle_bytes: int
    status_bytes: int


def request_watch(backend: str, mpi: LooksOfMpi | None, looks_a_pause: int) -> RequestWatch:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.
        mpi: None where MPI's function is not to be found.
        looks_a_pause: as for `NativeWatch`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    if mpi is None:
        log.info("request_watch: MPI_Request_get_status was not found; who waits looks by itself")
        return PausingWatch()
    return NativeWatch(mpi, looks_a_pause) if use_native(backend, "request_watch") else PausingWatch()


class PausingWatch:
    """A wait is one pause, after which its caller has to look."""

    looks = False

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """End the pause that is under way, or else the next one."""
        try:
            self._silence.release()
        except RuntimeError:  # rung already, and not yet heard
            return

    def hear(self) -> bool:
        """Forget a ring; returns whether there was one."""
        return self._silence.acquire(blocking=False)

    def wait(self, groups: Sequence[Sequence[int]], pauses: Pauses) -> bool:  # noqa: ARG002
        """One pause, the first."""
        return self._silence.acquire(timeout=pauses.first_s)


class NativeWatch:
    """C++ (csrc/request_watch.cpp).

    Args:
        mpi: how it looks at requests.
        looks_a_pause: looks between two pauses. Each lets MPI move a part of a long message; looks that moved something
            are not counted, so that more follow.

    Raises:
        ConfigError: the library was not built or does not load.
    """

    looks = True

    def __init__(self, mpi: LooksOfMpi, looks_a_pause: int = 1) -> None:
        library = shared_library.load("request_watch")
        self._ring, self._hear = library.request_watch_ring, library.request_watch_hear
        self._wait = library.request_watch_wait
        for function in (self._ring, self._hear):
            function.argtypes = (c_void_p,)
        self._ring.restype, self._hear.restype, self._wait.restype = None, c_int64, c_int64
        requests = c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p
        self._wait.argtypes = (c_void_p, *requests, c_int64, c_void_p, c_double, c_double, c_double, c_double)
        self._mpi, self._looks_a_pause, self._moving_s = mpi, looks_a_pause, _MOVING_S
        self._bell = c_uint32()
        self._least_look_ns = c_double()
        self._status = ctypes.create_string_buffer(mpi.status_bytes)

    def ring(self) -> None:
        """Note the ring in native code, which wakes the thread that waits."""
        self._ring(ctypes.byref(self._bell))

    def hear(self) -> bool:
        """Forget a ring; returns whether there was one."""
        return bool(self._hear(ctypes.byref(self._bell)))

    def wait(self, groups: Sequence[Sequence[int]], pauses: Pauses) -> bool:
        """All pauses and looks in one call of native code."""
        handles = list(chain.from_iterable(groups))
        ends = list(accumulate(len(group) for group in groups))
        return bool(
            self._wait(
                ctypes.byref(self._bell),
                self._mpi.get_status,
                self._mpi.handle_bytes,
                (c_int64 * len(handles))(*handles),
                (c_int64 * len(ends))(*ends),
                len(ends),
                self._status,
                self._looks_a_pause,
                ctypes.byref(self._least_look_ns),
                1e9 * self._moving_s,
                *(1e9 * seconds for seconds in pauses),
            )
        )
