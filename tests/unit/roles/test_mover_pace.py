"""A mover sleeps as long as nobody waits for it, and hears every ring."""

import threading
from contextlib import nullcontext

import pytest

from bagpipe_hpc.mpi.waiting import Haste
from bagpipe_hpc.roles.mover_pace import MoverPace

LONG_S = 30.0


class Asleep(MoverPace):
    """Its sleeps last until somebody rings."""

    def next_pause_s(self, haste: Haste) -> float:  # noqa: ARG002
        return LONG_S


@pytest.mark.parametrize(
    ("has_core", "is_awaited", "haste", "shortest_us", "longest_us"),
    [
        (True, False, Haste.SOON, 20, 100),
        (True, False, Haste.CALM, 20, 500),
        (True, False, Haste.NONE, 2000, 2000),
        (False, False, Haste.SOON, 200, 500),
        (False, False, Haste.CALM, 200, 1000),
        (False, False, Haste.NONE, 2000, 2000),
        *((has_core, True, Haste.SOON, 20, 100) for has_core in (True, False)),
        *((has_core, True, haste, 20, 500) for has_core in (True, False) for haste in (Haste.CALM, Haste.NONE)),
    ],
)
def test_sleeps_grow_to_what_the_haste_and_the_cores_allow(
    *, has_core: bool, is_awaited: bool, haste: Haste, shortest_us: int, longest_us: int
) -> None:
    """And begin anew with a round; who is awaited sleeps as if it had a core."""
    pace = MoverPace(has_core=has_core)
    with pace.awaited() if is_awaited else nullcontext():
        sleeps_us = [1e6 * pace.next_pause_s(haste) for _ in range(20)]
        pace.begin_round()
        again_us = 1e6 * pace.next_pause_s(haste)
    assert sleeps_us == sorted(sleeps_us)
    assert [sleeps_us[0], sleeps_us[-1], again_us] == pytest.approx([shortest_us, longest_us, shortest_us])


def test_a_ring_is_heard_once_before_or_while_the_mover_sleeps() -> None:
    pace = Asleep(has_core=True)
    pace.ring()
    pace.ring()
    assert pace.rest(Haste.NONE)
    asleep = threading.Thread(target=lambda: heard.append(pace.rest(Haste.NONE)))
    heard: list[bool] = []
    asleep.start()
    asleep.join(0.05)
    assert asleep.is_alive(), "two rings are one"
    pace.ring()
    asleep.join(LONG_S)
    assert heard == [True]


def test_what_was_rung_for_before_a_round_is_seen_in_it() -> None:
    pace = MoverPace(has_core=True)
    pace.ring()
    pace.begin_round()
    assert not pace.rest(Haste.SOON)
    pace.ring()
    assert pace.rest(Haste.SOON)


def fail() -> None:
    raise TimeoutError


def test_whom_the_compute_thread_waits_for_wakes() -> None:
    """And may sleep again once it computes, also where the wait has failed."""
    pace = Asleep(has_core=False)
    with pace.awaited():
        assert pace.rest(Haste.NONE)
    with pytest.raises(TimeoutError), pace.awaited():
        fail()
    assert MoverPace.next_pause_s(pace, Haste.NONE) == pytest.approx(2e-3)
