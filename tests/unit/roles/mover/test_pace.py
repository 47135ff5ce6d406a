"""A mover sleeps as long as nobody waits for it, and hears every ring."""

import threading
from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from bagpipe_hpc.kernels.request_watch import Pauses, PausingWatch
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import Haste
from bagpipe_hpc.roles.mover.pace import MoverPace

LONG_S = 30.0


class Looking(PausingWatch):
    """Says that it looks at requests."""

    looks = True


class Asleep(MoverPace):
    """Its sleeps last until somebody rings."""

    def next_pauses(self, haste: Haste, *, is_blind: bool = False) -> Pauses:  # noqa: ARG002
        return Pauses(LONG_S, LONG_S, LONG_S)


@pytest.mark.parametrize(
    ("has_core", "is_awaited", "haste", "shortest_us", "longest_us", "longest_looking_us"),
    [
        (True, False, Haste.SOON, 20, 100, 30),
        (True, False, Haste.CALM, 20, 500, 100),
        (True, False, Haste.NONE, 2000, 2000, 2000),
        (False, False, Haste.SOON, 200, 500, 200),
        (False, False, Haste.CALM, 200, 1000, 500),
        (False, False, Haste.NONE, 2000, 2000, 2000),
        *((has_core, True, Haste.SOON, 20, 100, 30) for has_core in (True, False)),
        *((has_core, True, haste, 20, 500, 100) for has_core in (True, False) for haste in (Haste.CALM, Haste.NONE)),
    ],
)
def test_sleeps_grow_to_what_the_haste_and_the_cores_allow(
    *, has_core: bool, is_awaited: bool, haste: Haste, shortest_us: int, longest_us: int, longest_looking_us: int
) -> None:
    """And begin anew with a round; who is awaited sleeps as if it had a core.

    Who looks natively does so more often, and sleeps on where there is nothing: only not as long as it is awaited.
    """
    pauses = {}
    for watch in (PausingWatch(), Looking()):
        pace = MoverPace(has_core=has_core, watch=watch)
        with pace.awaited() if is_awaited else nullcontext():
            pauses[watch.looks, False] = [pace.next_pauses(haste) for _ in range(20)]
            pace.begin_round()
            pauses[watch.looks, True] = [pace.next_pauses(haste, is_blind=True) for _ in range(20)]
    looking = pauses.pop((True, False))
    assert [1e6 * looking[0].first_s, 1e6 * looking[-1].longest_s] == pytest.approx([shortest_us, longest_looking_us])
    assert {pause.limit_s for pause in looking} == {1e-3 if is_awaited else 50e-3}
    for found in pauses.values():
        sleeps_us = [1e6 * pause.first_s for pause in found]
        assert sleeps_us == sorted(sleeps_us)
        assert [sleeps_us[0], sleeps_us[-1]] == pytest.approx([shortest_us, longest_us])
        assert {pause.limit_s for pause in found} == {0.0}


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


@pytest.mark.parametrize(("awaited", "limit_s"), [(None, 0.0), ([], 50e-3)])
def test_what_cannot_be_named_the_mover_looks_at_itself(awaited: list[Awaited] | None, limit_s: float) -> None:
    waits: list[Pauses] = []

    class Noted(Looking):
        def wait(self, groups: Sequence[Sequence[int]], pauses: Pauses) -> bool:
            waits.append(pauses)
            return super().wait(groups, pauses)

    MoverPace(has_core=True, watch=Noted()).rest(Haste.SOON, awaited)
    assert [pauses.limit_s for pauses in waits] == [limit_s]


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
    assert MoverPace.next_pauses(pace, Haste.NONE).first_s == pytest.approx(2e-3)
