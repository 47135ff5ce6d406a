"""Contenders in turns of seconds: all train at the same time, and all but one are stopped.

A machine whose speed changes from minute to minute meets all alike so, and each round has a ratio of its own.
"""

import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.paused_job import PausedJob
from benchmarks.jobs.watched_command import CommandError
from benchmarks.peers.contenders import Contender, TimedSteps, command_of, progress_of
from benchmarks.peers.workloads import PeerWorkload

_MOST_STEPS_A_SECOND = 1000
"""Of any contender: a run must not end before its last turn."""
_WARM_S = 0.25
"""Of a turn, before its time counts: caches hold what others have put there."""
_START_TIMEOUT_S = 300.0
_TIMEOUT_S = 3600.0
"""`train.timeout_s`: time for which a run is stopped counts."""
_LOOK_EVERY_S = 0.05


class Turns(NamedTuple):
    """How often and how long each contender trains.

    Attributes:
        rounds: turns of each; every other round goes the other way round.
        seconds: of a turn.
    """

    rounds: int
    seconds: float


class _Running(NamedTuple):
    contender: Contender
    output: Path
    job: PausedJob

    def step_done(self, after: int, timeout_s: float) -> tuple[int, float]:
        """Its progress once more than `after` steps are done.

        Raises:
            CommandError: they were not in time, or it has ended.
        """
        deadline = time.monotonic() + timeout_s
        while (progress := progress_of(self.contender, self.output))[0] <= after:
            self.job.require_running()
            if time.monotonic() > deadline:
                raise CommandError(f"{self.contender.title}: no more than {after} steps within {timeout_s:.1f} s")
            time.sleep(_LOOK_EVERY_S)
        return progress

    def turn(self, seconds: float) -> float:
        """Seconds of a step, the mean over a turn; behind it the contender is stopped again.

        Raises:
            CommandError: a turn is too short for a few steps, or it has ended.
        """
        before, _ = progress_of(self.contender, self.output)
        self.job.go_on()
        end = time.monotonic() + seconds
        time.sleep(_WARM_S)
        noted, _ = self.step_done(before, seconds)  # perhaps by a time before the stop, which would count
        first, since_s = self.step_done(noted, seconds)
        time.sleep(max(0.0, end - time.monotonic()))
        last, until_s = progress_of(self.contender, self.output)
        self.job.stop()
        self.job.require_running()
        if last == first:
            raise CommandError(f"{self.contender.title}: no two steps in a turn of {seconds} s; make turns longer")
        return (until_s - since_s) / (last - first)


def measure_turns(contenders: Sequence[Contender], workload: PeerWorkload, turns: Turns) -> dict[str, list[float]]:
    """Let contenders train in turns, behind their warm-up.

    Returns:
        Seconds of a step of each, by name, one a round.

    Raises:
        CommandError: one failed, or a turn was too short for a few of its steps.
    """
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _leave))
        running = [_start(stack, contender, workload, turns) for contender in contenders]
        steps_s: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for number in range(turns.rounds):
            for one in running if number % 2 == 0 else reversed(running):
                steps_s[one.contender.name].append(one.turn(turns.seconds))
    return steps_s


def _leave(number: int, _: object) -> None:
    """End the program, and with it those that it has stopped."""
    sys.exit(128 + number)


def _start(stack: ExitStack, contender: Contender, workload: PeerWorkload, turns: Turns) -> _Running:
    steps = TimedSteps.of(contender, workload)
    total = steps.total + int(_MOST_STEPS_A_SECOND * turns.rounds * turns.seconds)
    settings = ["train.evaluate=false", "train.checkpoint_at_end=false", f"train.max_steps={total}"]
    settings.append(f"train.epochs={-(-total // workload.steps_per_epoch)}")
    settings.append(f"train.timeout_s={_TIMEOUT_S:.0f}")
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=workload.shards.parent, ignore_cleanup_errors=True))
    output = Path(folder)
    job = stack.enter_context(PausedJob(*command_of(contender, workload, settings, output)))
    one = _Running(contender, output, job)
    one.step_done(steps.first, _START_TIMEOUT_S)
    job.stop()
    print(f"peers: {contender.title} has started", file=sys.stderr, flush=True)
    return one


def add_turns(
    report: Report,
    title: str,
    contenders: Sequence[Contender],
    steps_s: Mapping[str, Sequence[float]],
    batch_samples: int,
) -> dict[str, Any]:
    """Add the table of a workload's turns.

    Args:
        report: gets the table.
        title: of the table.
        contenders: who took part.
        steps_s: seconds of a step of each, by name, one a round.
        batch_samples: of a step.

    Returns:
        The figures of each contender, by name.
    """
    peers = [contender for contender in contenders if contender.is_peer]
    rows, figures = [], {}
    for contender in contenders:
        own = steps_s[contender.name]
        speeds = [batch_samples / seconds for seconds in own]
        ratios = {
            peer.name: statistics.median(theirs / ours for theirs, ours in zip(steps_s[peer.name], own, strict=True))
            for peer in peers
        }
        rows.append(
            [
                contender.title,
                f"{statistics.median(speeds):,.0f}",
                f"{min(speeds):,.0f} - {max(speeds):,.0f}",
                *(f"{ratio:.3f}" for ratio in ratios.values()),
            ]
        )
        figures[contender.name] = {
            "samples_per_s": median(speeds),
            "samples_per_s_of_turns": [round(speed) for speed in speeds],
            **{f"ratio_to_{name}": round(ratio, 4) for name, ratio in ratios.items()},
        }
    headings = ["medians of turns", "samples/s", "lowest - highest", *(f"to {peer.title}" for peer in peers)]
    report.table(title, headings, rows)
    return figures
