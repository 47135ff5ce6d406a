"""A watch ends when a group of requests is complete, somebody rings, or its time is over, and hears each ring."""

import ctypes
import resource
import threading
import time
from collections.abc import Callable

import pytest

from bagpipe_hpc.kernels.request_watch import LooksOfMpi, NativeWatch, Pauses, PausingWatch, RequestWatch, request_watch

LONG_S = 30.0
SHORT = Pauses(20e-6, 30e-6, LONG_S)
HUGE = {4: 0xAC000001, 8: 0x7FFF_0000_0001}
"""Handles of which MPI's integers of 32 bits are negative, and pointers need more."""


class Mpi:
    """Requests that are complete when a test says so, asked by `MPI_Request_get_status`.

    Args:
        handle_bytes: 4 or 8.
        status: what the function returns; other than 0 for an error.
    """

    def __init__(self, handle_bytes: int, status: int = 0) -> None:
        self.complete: set[int] = set()
        self.looked: list[int] = []
        self.looks: Callable[[int], None] = self.looked.append

        def get_status(handle: int, flag: "ctypes._Pointer[ctypes.c_int]", _: int) -> int:
            self.looks(handle or 0)
            flag[0] = int(handle in self.complete)
            return status

        kind = ctypes.c_uint32 if handle_bytes == 4 else ctypes.c_void_p
        self._function = ctypes.CFUNCTYPE(ctypes.c_int, kind, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p)(get_status)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        assert address is not None
        self.watch = NativeWatch(LooksOfMpi(address, handle_bytes, 24))


@pytest.fixture(params=[4, 8])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return Mpi(request.param)


@pytest.mark.parametrize("handle_bytes", [4, 8])
def test_a_group_is_complete_with_its_last_request(handle_bytes: int) -> None:
    """It looks until then, at no request behind the first of a group that is not complete."""
    mpi, huge = Mpi(handle_bytes), HUGE[handle_bytes]
    mpi.complete.add(1)

    def look(handle: int) -> None:
        mpi.looked.append(handle)
        if len(mpi.looked) == 10:
            mpi.complete.add(huge)
        if len(mpi.looked) == 40:
            mpi.complete.add(3)

    mpi.looks = look
    assert not mpi.watch.wait([[1, 2], [huge, 3, 4], [huge, 3]], SHORT)
    assert set(mpi.looked) == {1, 2, huge, 3, 4}
    assert mpi.looked[-2:] == [huge, 3]
    assert 4 not in mpi.looked[:40]


def test_a_group_of_nothing_is_complete(mpi: Mpi) -> None:
    assert not mpi.watch.wait([[5], []], SHORT)
    assert mpi.looked == [5]


def test_what_mpi_calls_wrong_ends_the_wait() -> None:
    """Whoever owns the request asks for it, and hears what is wrong."""
    mpi = Mpi(4, status=1)
    assert not mpi.watch.wait([[5]], SHORT)


def test_looks_between_pauses_are_as_many_as_told(mpi: Mpi) -> None:
    mpi.watch._looks_a_pause, mpi.watch._moving_s = 3, LONG_S
    assert not mpi.watch.wait([[5]], Pauses(1e-6, 1e-6, 0.0))
    assert mpi.looked == [5, 5, 5]


def test_looks_that_move_something_on_are_followed_by_others(mpi: Mpi) -> None:
    """Up to 64, and then by those between the next pauses; the fourth one alone moves nothing."""
    mpi.watch._looks_a_pause, mpi.watch._moving_s = 1, 0.2
    mpi.watch._least_look_ns.value = 1e-3

    def look(handle: int) -> None:
        mpi.looked.append(handle)
        if len(mpi.looked) < 4:
            time.sleep(0.3)

    mpi.looks = look
    assert not mpi.watch.wait([[5]], Pauses(1e-6, 1e-6, 0.0))
    assert len(mpi.looked) == 4
    mpi.watch._moving_s = 0.0
    assert not mpi.watch.wait([[5]], Pauses(1e-6, 1e-6, 0.0))
    assert len(mpi.looked) == 4 + 64


def test_looks_that_are_slow_on_this_processor_move_nothing_on(mpi: Mpi) -> None:
    """But the first one, with which nothing can be compared yet. One that takes longer than the others does."""
    mpi.watch._looks_a_pause = 4
    long_ones = [0]

    def look(handle: int) -> None:
        mpi.looked.append(handle)
        time.sleep(0.2 if len(mpi.looked) in long_ones else 20e-3)

    mpi.looks = look
    assert not mpi.watch.wait([[5]], Pauses(1e-6, 1e-6, 0.0))
    assert 5 <= len(mpi.looked) < 20
    mpi.looked.clear()
    long_ones += [1, 2, 3, 4]
    assert not mpi.watch.wait([[5]], Pauses(1e-6, 1e-6, 0.0))
    assert 8 <= len(mpi.looked) < 30


def test_the_time_of_a_look_is_forgotten(mpi: Mpi) -> None:
    """Where the way of the messages has changed, all looks would seem to move something on."""
    mpi.watch._looks_a_pause, mpi.watch._least_look_ns.value = 1, 5e3

    def look(handle: int) -> None:
        mpi.looked.append(handle)
        end_ns = time.perf_counter_ns() + 20_000
        while time.perf_counter_ns() < end_ns:
            pass

    mpi.looks = look
    looks = []
    for _ in range(40):
        mpi.looked.clear()
        assert not mpi.watch.wait([[5]], Pauses(1e-6, 1e-6, 0.0))
        looks.append(len(mpi.looked))
    assert looks[0] == 64
    assert min(looks) < 10


def test_a_ring_ends_looks_that_move_something_on(mpi: Mpi) -> None:
    """And is heard where the time is over as well."""
    mpi.watch._moving_s, mpi.watch._least_look_ns.value = 0.0, 1e-3

    def look(handle: int) -> None:
        mpi.looked.append(handle)
        if len(mpi.looked) == 5:
            mpi.watch.ring()

    mpi.looks = look
    for limit_s in (0.0, LONG_S):
        mpi.looked.clear()
        assert mpi.watch.wait([[5]], Pauses(1e-6, 1e-6, limit_s))
        assert len(mpi.looked) == 5


@pytest.mark.parametrize(("pause_s", "is_awake"), [(8e-6, True), (2e-3, False)])
def test_a_short_pause_is_spent_awake(mpi: Mpi, pause_s: float, *, is_awake: bool) -> None:
    def slept() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    def look(handle: int) -> None:
        mpi.looked.append(handle)
        if len(mpi.looked) == 41:
            mpi.watch.ring()

    mpi.looks, mpi.watch._looks_a_pause, mpi.watch._moving_s = look, 1, LONG_S
    before = slept()
    assert mpi.watch.wait([[5]], Pauses(pause_s, pause_s, LONG_S))
    assert (slept() - before < 20) == is_awake, "a pause asleep gives the core away"


def test_a_ring_from_another_thread_ends_a_pause(mpi: Mpi) -> None:
    rung = threading.Timer(0.2, mpi.watch.ring)
    rung.start()
    assert mpi.watch.wait([[5]], Pauses(LONG_S, LONG_S, LONG_S))


def test_a_wait_ends_with_its_time(mpi: Mpi) -> None:
    """Also where there is nothing to look at, which takes one pause."""
    for groups in ([[5]], []):
        start = time.monotonic()
        assert not mpi.watch.wait(groups, Pauses(1e-3, 1e-3, 0.05))
        assert time.monotonic() - start >= 0.05
    assert len(mpi.looked) >= 2


@pytest.mark.parametrize("is_native", [True, False])
def test_a_ring_is_heard_once_before_or_in_a_wait(*, is_native: bool) -> None:
    mpi = Mpi(4)  # kept: native code calls its function
    watch: RequestWatch = mpi.watch if is_native else PausingWatch()
    endless = Pauses(LONG_S, LONG_S, LONG_S)
    assert not watch.hear()
    watch.ring()
    watch.ring()
    assert watch.wait([[5]], endless)
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(watch.wait([[5]], endless)))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive(), "two rings are one"
    watch.ring()
    waiting.join(LONG_S)
    assert heard == [True]
    watch.ring()
    assert watch.hear()
    assert not watch.wait([[5]], Pauses(1e-3, 1e-3, 0.0))


def test_rings_of_many_threads_are_all_heard(mpi: Mpi) -> None:
    """Each thread rings behind what it gives; who waits has seen all of it when nobody rings any more."""
    given, seen, each, threads = [0, 0], [0], 2000, 2

    def give(number: int) -> None:
        for _ in range(each):
            given[number] += 1
            mpi.watch.ring()

    def see() -> None:
        while seen[0] < each * threads:
            if not mpi.watch.wait([[5]], Pauses(1e-3, 1e-3, LONG_S)):
                return
            seen[0] = sum(given)

    everybody = [threading.Thread(target=see), *(threading.Thread(target=give, args=(n,)) for n in range(threads))]
    for thread in everybody:
        thread.start()
    for thread in everybody:
        thread.join(LONG_S)
    assert seen[0] == each * threads


def test_native_code_watches_where_it_can(caplog: pytest.LogCaptureFixture) -> None:
    """Else the log says why it does not."""
    looks = LooksOfMpi(1, 8, 24)
    assert isinstance(request_watch("auto", looks, 4), NativeWatch)
    assert isinstance(request_watch("reference", looks, 4), PausingWatch)
    with caplog.at_level("INFO"):
        assert isinstance(request_watch("auto", None, 4), PausingWatch)
    assert "MPI_Request_get_status was not found" in caplog.text
