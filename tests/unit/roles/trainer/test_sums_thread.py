"""A thread of their own moves sums on while any is under way, sleeps otherwise, and says what ended it."""

import threading
import time
from collections.abc import Sequence

import pytest

from bagpipe_hpc.kernels.request_watch import Pauses, PausingWatch
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import Haste
from bagpipe_hpc.roles.trainer import sums_thread
from bagpipe_hpc.roles.trainer.sums_thread import SumsThread, open_sums_thread
from tests.eventually import eventually

LONG_S = 30.0


class Sums:
    """Sums that need some steps more each time that they are begun, and are ended by the last of them."""

    def __init__(self, *, can_name: bool = True) -> None:
        self.left = 0
        self.can_name = can_name
        self.asked = 0
        self.ended = threading.Event()

    def begin(self, steps: int) -> None:
        self.ended.clear()
        self.left = steps

    def advance(self) -> Haste:
        self.asked += 1
        if not self.left:
            return Haste.NONE
        self.left -= 1
        if self.left:
            return Haste.SOON
        self.ended.set()
        return Haste.NONE

    def awaited(self) -> list[Awaited] | None:
        if not self.can_name:
            return None
        return [[]] if self.left else []


class Watch(PausingWatch):
    """Looks, as it says, and notes how it was told to wait: a group of no requests is complete at once."""

    looks = True

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[int, Pauses]] = []

    def wait(self, groups: Sequence[Sequence[int]], pauses: Pauses) -> bool:
        self.waits.append((len(groups), pauses))
        return not groups and self._silence.acquire(timeout=pauses.first_s)


@pytest.mark.parametrize("kind", [Watch, PausingWatch])
@pytest.mark.parametrize("can_name", [True, False])
def test_each_sum_that_is_rung_for_is_moved_on_to_its_end(kind: type[PausingWatch], *, can_name: bool) -> None:
    """Also a second one, behind a sleep, in which nobody is asked; and the last one before the thread ends."""
    sums, thread = Sums(can_name=can_name), SumsThread(kind())
    thread.move_on(sums)

    def is_idle() -> bool:
        asked = sums.asked
        time.sleep(0.05)
        return sums.asked == asked

    for steps in (5, 3):
        sums.begin(steps)
        thread.ring()
        assert sums.ended.wait(LONG_S)
        assert eventually(is_idle)
        thread.check()
    sums.begin(1)
    thread.stop()
    assert sums.ended.is_set(), "what is spent is freed by this thread alone"
    assert not thread._thread.is_alive()


def test_who_looks_keeps_its_core_while_sums_are_under_way_and_no_longer() -> None:
    watch, sums = Watch(), Sums()
    thread = SumsThread(watch)
    thread.move_on(sums)
    sums.begin(3)
    thread.ring()
    assert sums.ended.wait(LONG_S)
    assert eventually(lambda: any(not groups for groups, _ in watch.waits))
    thread.stop()
    under_way = [pauses for groups, pauses in watch.waits if groups]
    assert [pauses.longest_s < 10e-6 for pauses in under_way] == [True, True], "of 10 us and more it would sleep"
    assert min(pauses.first_s for groups, pauses in watch.waits if not groups) >= 0.1


def test_a_thread_that_nobody_rings_never_begins() -> None:
    """As where Horovod sums."""
    thread = SumsThread(Watch())
    thread.move_on(Sums())
    assert thread._thread.ident is None
    thread.stop()


@pytest.mark.parametrize(("setting", "says"), [("own", True), ("auto", False)])
def test_who_asked_for_a_thread_hears_that_there_was_nothing_to_do(
    setting: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, says: bool
) -> None:
    monkeypatch.setattr(sums_thread, "open_watch", lambda *_: Watch())
    for is_rung in (False, True):
        caplog.clear()
        thread = open_sums_thread(setting, "auto", 2)
        assert thread is not None
        thread.move_on(Sums())
        if is_rung:
            thread.ring()
        thread.stop()
        assert ("train.sums_thread=own changed nothing" in caplog.text) == (says and not is_rung)


def test_what_ends_the_thread_is_raised_to_whom_waits() -> None:
    class Failing(Sums):
        def advance(self) -> Haste:
            raise ConnectionError("the other trainer is gone")

    thread = SumsThread(Watch())
    thread.move_on(Failing())
    thread.check()
    thread.ring()
    assert eventually(lambda: not thread._thread.is_alive())
    for say in (thread.check, thread.stop):
        with pytest.raises(ConnectionError, match="the other trainer is gone"):
            say()


@pytest.mark.parametrize(
    ("setting", "cores", "looks", "expected"),
    [
        ("auto", 2, True, True),
        ("auto", 1, True, False),  # that is the mover's
        ("auto", 0, True, False),
        ("auto", 2, False, False),  # Python would keep the interpreter from who computes
        ("own", 0, False, True),
        ("mover", 9, True, False),
    ],
)
def test_sums_have_a_thread_where_it_has_a_core(
    setting: str, cores: int, monkeypatch: pytest.MonkeyPatch, *, looks: bool, expected: bool
) -> None:
    monkeypatch.setattr(sums_thread, "open_watch", lambda *_: Watch() if looks else PausingWatch())
    assert (open_sums_thread(setting, "auto", cores) is not None) == expected
