"""Whole jobs on one host, and the processor time that their ranks' threads take for a step."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.tools.conditions import REPOSITORY
from benchmarks.jobs.other_load import OtherLoad
from benchmarks.jobs.own_settings import require_free
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.watched_command import CommandError
from benchmarks.jobs.workload import Workload

FOLDER = REPOSITORY / "build" / "bench"
"""For shards and outputs."""
RECORD_STEPS = 10
"""Steps between two looks at most (`train.log_every_steps`): what counts begins and ends with a multiple of them."""
_LOOK_EVERY_S = 0.02

_Threads = dict[tuple[int, int, bool], float]
"""Processor time in seconds of each thread, by its rank, its number in the system, and whether it is the main one."""


@dataclass(frozen=True)
class WatchedSteps:
    """What some steps of a job showed.

    Attributes:
        step_ms: of one, in the mean.
        compute_ms: processor time a step of all trainers' compute threads together.
        other_threads_ms: of the trainers' other threads.
        other_roles_ms: of oracle and servers.
        others_share: of the cores, that other programs took.
        told: what trainers said of their steps in the mean, the last report first (`metrics.jsonl`).
    """

    step_ms: float
    compute_ms: float
    other_threads_ms: float
    other_roles_ms: float
    others_share: float
    told: list[dict[str, float]]


def watch_steps(
    workload: Workload, shards: Path, layout: RoleLayout, steps: StepRange, overrides: list[str]
) -> WatchedSteps:
    """Run a job, and look at its threads when the first and the last step that count are done.

    Args:
        workload: whose configuration it has.
        shards: with rows enough for all steps.
        layout: of its ranks, oracle, servers and trainers in this order.
        steps: those that count, which begin and end with a multiple of `RECORD_STEPS`, and all.
        overrides: further settings, each `section.field=value`; none of the job's own.

    Raises:
        CommandError: it ended with an error, or before the last step that counts.
        ConfigError: overrides are settings that the job has itself.
    """
    counted_steps = steps.last - steps.first
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch, OtherLoad() as others:
        output = Path(scratch, "run")
        own = [
            *(f"data.path={shards}", "data.verify=quick", f"roles.servers={layout.servers}"),
            *("roles.placement=rank_order", f"train.max_steps={steps.total}", f"train.log_every_steps={RECORD_STEPS}"),
            *("train.epochs=1", "train.evaluate=false", "train.checkpoint_at_end=false", f"train.output={output}"),
        ]
        require_free(overrides, own)
        settings = [*own, "train.device=cpu", "kernels.linear=onednn", *overrides]
        command: list[str | Path] = [REPOSITORY / "scripts" / "run_ranks.sh", str(layout.world_size), sys.executable]
        command += ["-m", "bagpipe_hpc", "train", workload.config_file, *settings]
        log = Path(scratch, "log")
        with log.open("w") as file:
            job = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        is_seen = _wait_for(job, output, steps.first)
        before, since = _threads(job.pid), time.monotonic()
        is_seen = is_seen and _wait_for(job, output, steps.last)
        after, seconds = _threads(job.pid), time.monotonic() - since
        if job.wait():
            raise CommandError(f"{' '.join(map(str, command))}\nended with {job.returncode}:\n{log.read_text()}")
        if not is_seen:
            reached = next(_progress(output), {"step": 0})["step"]
            raise CommandError(
                f"{' '.join(map(str, command))}\nended at step {reached}, and steps {steps.first} to {steps.last} count"
            )
        counted = [record for record in _progress(output) if steps.counts(record["step"])]

    def spent_ms(*, of_trainers: bool, of_main: bool | None = None) -> float:
        found = 0.0
        for (rank, thread, is_main), used_s in after.items():
            if (layout.role(rank) is Role.TRAINER) is of_trainers and of_main in (None, is_main):
                found += used_s - before.get((rank, thread, is_main), 0.0)
        return 1e3 * found / counted_steps

    return WatchedSteps(
        1e3 * seconds / counted_steps,
        spent_ms(of_trainers=True, of_main=True),
        spent_ms(of_trainers=True, of_main=False),
        spent_ms(of_trainers=False),
        others.share,
        [record["of_trainers"]["mean"] for record in counted],
    )


def _wait_for(job: "subprocess.Popen[bytes]", output: Path, step: int) -> bool:
    """Wait until a step is recorded, or the job is over. Returns whether it was recorded while the job ran."""
    while job.poll() is None:
        if next(_progress(output), {"step": 0})["step"] >= step:
            return True
        time.sleep(_LOOK_EVERY_S)
    return False


def _progress(output: Path) -> Iterator[dict[str, Any]]:
    """What the job has said of its progress, the last first; no line is parsed before it is asked for."""
    with contextlib.suppress(OSError):
        lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        records = (json.loads(line) for line in reversed(lines) if line.endswith("\n"))
        yield from (record for record in records if record["event"] == "progress")


def _threads(launcher: int) -> _Threads:
    """Of all ranks that a launcher has started, in the order in which it did."""
    found: _Threads = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        processes = [
            (process.pid, process)
            for process in psutil.Process(launcher).children(recursive=True)
            if process.cmdline()[1:4] == ["-m", "bagpipe_hpc", "train"]
        ]
        for rank, (_, process) in enumerate(sorted(processes)):
            for thread in process.threads():
                found[rank, thread.id, thread.id == process.pid] = thread.user_time + thread.system_time
    return found
