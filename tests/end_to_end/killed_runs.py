"""Runs that are killed: one rank of a job is sent SIGKILL, as a host's memory killer or a broken machine would.

Another signal may take its place: SIGSTOP, of a rank that stands still without being gone.
"""

import contextlib
import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from tests.end_to_end.test_equality import overrides
from tests.ranks import run_ranks

SERVERS, TRAINERS = 2, 2
RANKS = 1 + SERVERS + TRAINERS
ORACLE, SERVER, TRAINER = 0, 2, 4
"""World ranks of the oracle, of the second server and of the second trainer."""

_MARK = "BAGPIPE_TEST_MARK"
_RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
TIMEOUT_S = 240.0
LAST_TIMEOUT_S = 3600.0
"""Of the run that is left to finish after a soak: it has most of the steps before it."""

Running = Future[CompletedProcess[str]]


@dataclass(frozen=True)
class Killed:
    """How a run that lost a rank ended.

    Attributes:
        finished: exit status and output.
        end_s: from the kill to the end of the launcher.
        process: number of the process that was killed.
        left: ranks that outlived the launcher by more than a second; they have been killed.
    """

    finished: CompletedProcess[str]
    end_s: float
    process: int
    left: tuple[int, ...]


def settings(output: Path) -> list[str]:
    """Of a run with many checkpoints, which goes on from them by itself."""
    return overrides(
        "adam",
        output,
        f"roles.servers={SERVERS}",
        "train.deterministic=true",
        "train.epochs=12",
        "train.checkpoint_every_steps=20",
        "train.resume=auto",
    )


def command(config_path: Path, output: Path) -> list[str | Path]:
    """What each rank of that run starts."""
    return ["bagpipe", "train", config_path, *settings(output)]


def has_trained(output: Path, steps: int) -> bool:
    """Whether the metrics tell of so many steps."""
    try:
        lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return bool(lines) and max(json.loads(line)["step"] for line in lines) >= steps
    except (OSError, ValueError):
        return False


def ranks_of(mark: str) -> dict[int, int]:
    """Process numbers by world rank of the run that carries a mark in its environment.

    What a rank has started looks like that rank until it becomes another program: the first process counts.
    """
    found: dict[int, int] = {}
    for number in sorted(int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()):
        folder = Path("/proc") / str(number)
        try:
            entries = (folder / "environ").read_bytes().split(b"\0")
            program = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        variables = dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)
        rank = next((variables[name] for name in _RANK_VARIABLES if name in variables), None)
        if variables.get(_MARK) == mark and rank is not None and b"python" in program:
            found.setdefault(int(rank), number)
    return found


def kill_one(
    ranks: int,
    command: Sequence[str | Path],
    rank: int,
    when: Callable[[], bool],
    delay_s: float = 0.0,
    number: signal.Signals = signal.SIGKILL,
) -> Killed | CompletedProcess[str]:
    """Start ranks and kill one of them.

    Args:
        ranks: number of ranks.
        command: what each of them runs.
        rank: which one is killed.
        when: is asked again and again, and returns true when it is time.
        delay_s: seconds from then to the kill.
        number: the signal.

    Returns:
        How the job ended; just what it gave where it was over before its rank could be killed.
    """
    mark = uuid.uuid4().hex
    with ThreadPoolExecutor(1) as background:
        running = background.submit(run_ranks, ranks, *command, timeout_s=TIMEOUT_S, env={_MARK: mark})
        if not _wait(when, running):
            return running.result()
        time.sleep(delay_s)
        while (process := ranks_of(mark).get(rank)) is None:  # not started yet
            if running.done():
                return running.result()
            time.sleep(0.01)
        os.kill(process, number)
        killed_s = time.monotonic()
        finished = running.result()
        return Killed(finished, time.monotonic() - killed_s, process, tuple(_end_all(mark)))


def suspend_all(
    ranks: int, command: Sequence[str | Path], when: Callable[[], bool], standstill_s: float
) -> CompletedProcess[str]:
    """Start ranks, stop all of them for a while, as Slurm does with a job that makes room for another; how they end.

    Args:
        ranks: number of ranks.
        command: what each of them runs.
        when: is asked again and again, and returns true when it is time.
        standstill_s: seconds that they stand still. Behind them the oracle is asked to stop the run.
    """
    mark = uuid.uuid4().hex
    with ThreadPoolExecutor(1) as background:
        running = background.submit(run_ranks, ranks, *command, timeout_s=TIMEOUT_S, env={_MARK: mark})
        if not _wait(when, running):
            return running.result()
        found = ranks_of(mark)
        for process in found.values():
            os.kill(process, signal.SIGSTOP)
        time.sleep(standstill_s)
        for process in found.values():
            os.kill(process, signal.SIGCONT)
        time.sleep(1.0)  # what was held up has gone on
        os.kill(found[ORACLE], signal.SIGUSR1)
        return running.result()


def _end_all(mark: str) -> list[int]:
    """Kill the ranks of a run that are still there a second from now, and name them."""
    deadline = time.monotonic() + 1.0
    while (left := ranks_of(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return sorted(left)


def _wait(when: Callable[[], bool], running: Running) -> bool:
    """Wait until it is time; false if the run ends first, at the latest by its own limit."""
    while not when():
        if running.done():
            return False
        time.sleep(0.005)
    return True


@dataclass
class SoakResult:
    """What a soak saw.

    Attributes:
        kills: how many, by role.
        ends_s: seconds from each kill to the end of its job.
        before_training: kills at a random time after the job's start.
        while_saving: kills while a checkpoint was written.
    """

    kills: dict[str, int]
    ends_s: list[float]
    before_training: int = 0
    while_saving: int = 0


def soak(command: Sequence[str | Path], output: Path, servers: int, trainers: int, kills: int, seed: int) -> SoakResult:
    """Start a run that resumes by itself again and again, killing a random rank at a random time, then let it finish.

    Args:
        command: `bagpipe train ... train.resume=auto`.
        output: its output folder.
        servers: number of servers.
        trainers: number of trainers.
        kills: how often a rank is killed.
        seed: of ranks and times.

    Raises:
        AssertionError: a job with a killed rank ended well, or the last one did not.
    """
    rng = random.Random(seed)
    ranks = 1 + servers + trainers
    result = SoakResult({}, [])
    metrics = output / "metrics.jsonl"
    while len(result.ends_s) < kills:
        rank = rng.randrange(ranks)
        role = "oracle" if rank == 0 else "server" if rank <= servers else "trainer"
        target = rng.choice(["start", "training", "saving"])
        started_ns = time.time_ns()

        def is_time(target: str = target, started_ns: int = started_ns) -> bool:
            if target == "start":
                return True
            if target == "saving":
                return any((output / "checkpoints").glob("*.partial/.*.partial"))
            return metrics.exists() and metrics.stat().st_mtime_ns > started_ns

        delay_s = rng.uniform(0.0, 3.0) if target == "start" else rng.uniform(0.0, 0.3) if target == "training" else 0.0
        killed = kill_one(ranks, command, rank, is_time, delay_s)
        if not isinstance(killed, Killed):
            assert killed.returncode == 0, killed.stderr
            assert "nothing is left to do" in killed.stderr or (output / "summary.json").exists(), killed.stderr
            if target == "start":
                continue
            break  # the run is over: there is nothing left to kill
        assert killed.finished.returncode != 0, killed.finished.stderr
        result.kills[role] = result.kills.get(role, 0) + 1
        result.ends_s.append(killed.end_s)
        result.before_training += target == "start"
        result.while_saving += target == "saving"
    finished = run_ranks(ranks, *command, timeout_s=LAST_TIMEOUT_S)
    assert finished.returncode == 0, finished.stderr
    return result
