"""How often a server polls: it may be late where trainers ask long before they need rows, and nowhere else."""

from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.mpi import waiting
from bagpipe_hpc.mpi.waiting import SERVER_LATE_SHARE, Answered, Polls, serve_until_barrier
from bagpipe_hpc.roles.embedding_server import polls_of
from bagpipe_hpc.roles.request_waits import BarrierSleeps

POLL_S, MOST_S = 200e-6, 10e-3


def pauses_of(answers: list[Answered], late_share: float, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """When a server pauses and for how long, in seconds, if its polls come to `answers` and take no time."""
    now_s, paused, left = [100.0], [], iter(answers)

    def sleep(_: Any, pause_s: float) -> None:
        paused.append((now_s[0] - 100.0, pause_s))
        now_s[0] += pause_s

    is_over = iter([False] * (answers.count(Answered.NOTHING) - 1) + [True])
    barrier = SimpleNamespace(Test=lambda: next(is_over))
    comm: Any = SimpleNamespace(Ibarrier=lambda: barrier)
    with monkeypatch.context() as patched:
        patched.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
        serve_until_barrier(comm, lambda: next(left), Polls(POLL_S, sleep=sleep, late_share=late_share))
    assert not list(left)
    return paused


def test_a_server_is_late_by_a_part_of_the_quiet_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is asked again; by 10 ms at most."""
    answers = [Answered.WAITING, *[Answered.NOTHING] * 60, Answered.WAITING, *[Answered.NOTHING] * 10]
    paused = pauses_of(answers, 0.25, monkeypatch)
    quiet_since = [paused[0][0]] * 61 + [paused[61][0]] * 10
    for (at_s, pause_s), since_s in zip(paused, quiet_since, strict=True):
        assert pause_s <= max(POLL_S, min(0.25 * (at_s - since_s), MOST_S)) + 1e-9
    lengths = [pause_s for _, pause_s in paused]
    assert lengths[60] == MOST_S
    assert lengths[61] == pytest.approx(100e-6)
    assert sum(pause_s > POLL_S for pause_s in lengths) > 30, "it makes use of it"


def test_a_server_is_as_soon_as_told_where_nobody_looks_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = pauses_of([Answered.WAITING, *[Answered.NOTHING] * 60], 0.0, monkeypatch)
    assert max(pause_s for _, pause_s in paused) == POLL_S


def window(*, is_asked: bool = True, answers_from_memory: bool = True) -> Any:
    return SimpleNamespace(is_asked=is_asked, answers_from_memory=answers_from_memory)


def polls(lookahead: int, *windows: Any) -> Polls:
    roles, kernels = SimpleNamespace(server_poll_us=200), SimpleNamespace(backend="reference")
    config = SimpleNamespace(roles=roles, kernels=kernels, lookahead=SimpleNamespace(batches=lookahead))
    run: Any = SimpleNamespace(config=config)
    return polls_of(run, windows, lambda: None)


def test_who_may_be_late() -> None:
    """One-sided calls and disks get on only while the server polls."""
    assert polls(50, window(), window()).late_share == SERVER_LATE_SHARE
    assert polls(1, window()).late_share == 0.0
    assert polls(50, window(), window(answers_from_memory=False)).late_share == 0.0
    assert polls(50, window()).longest_sleep_s == pytest.approx(POLL_S)
    unasked = polls(50, window(is_asked=False, answers_from_memory=False))
    assert (unasked.late_share, unasked.longest_sleep_s) == (0.0, BarrierSleeps.longest_s)
