"""The oracle's main loop over the segments of a run: what is planned, and where planning ends."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.mpi.plan_channel import Word
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.roles import oracle
from bagpipe_hpc.roles.plan_sources import Planned
from bagpipe_hpc.telemetry.trace import Trace

WINDOW = Window(3, 1)
BATCHES = 4
EVALUATION = Segment(SegmentKind.EVALUATE, 0, 0, BATCHES, BATCHES, 8, 2, checkpoint=False)
TRAINING = [replace(EVALUATION, kind=SegmentKind.TRAIN, first_step=step) for step in (0, BATCHES, 2 * BATCHES)]
WHOLE = [TRAINING[0], EVALUATION, *TRAINING[1:]]


class Source:
    """Plans of segments that say no more than which batch they are of.

    Args:
        waits: by which group more than usual the rows of each batch are fetched.
        outgrown: shared slots beyond those that were expected.
    """

    watch = None

    def __init__(self, waits: int = 0, outgrown: int = 0) -> None:
        self._waits, self._outgrown = waits, outgrown
        self.asked: list[tuple[Segment, bool]] = []
        self.is_closed = False

    def plans(self, segment: Segment, *, ends: bool) -> Iterator[Planned]:
        self.asked.append((segment, ends))
        last = 0 if ends else segment.batches
        for batch in range(last + 1):
            fetched_after = SimpleNamespace(prefetch_after=WINDOW.group_before_prefetch(batch) + self._waits)
            shared = SimpleNamespace(batch=batch, is_closing=batch == last)
            plan: Any = SimpleNamespace(shared=shared, groups=[SimpleNamespace(shared=fetched_after)])
            yield Planned(plan, self._outgrown)

    def used_slots(self) -> int:
        return 7

    def close(self) -> None:
        self.is_closed = True


class Sender:
    """Takes plans; the first trainer's words are given."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = iter(words)
        self.sent: list[int] = []
        self.is_finished = False

    def send(self, plan: Any) -> None:
        self.sent.append(plan.shared.batch)

    def advance(self) -> None:
        pass

    def await_word(self) -> Word:
        return next(self._words)

    def finish(self) -> None:
        self.is_finished = True


class Stop:
    """A request to stop, or none."""

    def __init__(self, *, is_asked: bool) -> None:
        self._is_asked = is_asked
        self.is_answered = False

    def is_asked(self) -> bool:
        return self._is_asked

    def answer(self) -> None:
        self.is_answered = True


class Job:
    """A run of which the oracle alone is there; it has ended when this is made."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        schedule: Sequence[Segment] = WHOLE,
        *,
        words: Sequence[Word] = (),
        stops: bool = False,
        source: Source | None = None,
    ) -> None:
        self.source, self.sender, self.stop = source or Source(), Sender(words), Stop(is_asked=stops)
        self.trace = Trace(enabled=False)
        patch.setattr(oracle, "open_source", lambda *_: self.source)
        patch.setattr(oracle, "PlanSender", lambda *_: self.sender)
        patch.setattr(oracle, "_see_hosts", lambda _: None)
        config = SimpleNamespace(
            kernels=SimpleNamespace(backend="auto"),
            policy=SimpleNamespace(name="bagpipe"),
            train=SimpleNamespace(deterministic=False),
        )
        context: Any = SimpleNamespace(
            run=SimpleNamespace(config=config, schedule=tuple(schedule), replayed=()),
            need=SimpleNamespace(window=WINDOW, total_rows=9, reserved_rows=5),
            comms=SimpleNamespace(layout=SimpleNamespace(trainers=1), planning=None),
            trace=self.trace,
            checkpoints_timeout_s=10.0,
        )
        oracle.run_oracle(context, self.stop)  # type: ignore[arg-type]
        assert self.sender.is_finished
        assert self.source.is_closed


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what the oracle says."""
    caplog.set_level(logging.INFO, "bagpipe_hpc.roles.oracle")


def test_all_segments_are_planned(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(monkeypatch)
    assert job.source.asked == [(segment, False) for segment in WHOLE]
    assert job.sender.sent == [*range(BATCHES + 1)] * len(WHOLE)
    assert job.trace.step == 3 * BATCHES
    assert not job.stop.is_answered
    assert "cache: 7 of 9 rows were in use at most; 0 batches were fetched late" in caplog.text


def test_who_is_asked_to_stop_ends_behind_the_first_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is always asked before it has begun gets ahead, too; what comes next has no batch, and ends all."""
    job = Job(monkeypatch, [EVALUATION, *WHOLE], stops=True)
    assert job.source.asked == [(EVALUATION, False), (TRAINING[0], False), (EVALUATION, True)]
    assert job.sender.sent == [*range(BATCHES + 1)] * 2 + [0]
    assert job.stop.is_answered


@pytest.mark.parametrize("goes_on", [True, False])
def test_training_ends_when_the_trainers_say_so(goes_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = [replace(segment, may_end=segment is EVALUATION) for segment in WHOLE]
    job = Job(monkeypatch, schedule, words=[Word(goes_on, 0.5)])
    assert [ends for _, ends in job.source.asked] == ([False] * 4 if goes_on else [False, False, True])
    assert not job.stop.is_answered


def test_what_the_first_batches_did_not_let_expect_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once that copies take more memory, and how many batches were fetched late; a closing plan fetches nothing."""
    Job(monkeypatch, TRAINING[:2], source=Source(waits=1, outgrown=3))
    assert caplog.text.count("take memory for 3 slots more") == 1
    assert f"cache: 7 of 14 rows were in use at most; {2 * BATCHES} batches were fetched late" in caplog.text
