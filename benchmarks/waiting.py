"""`python -m benchmarks waiting`: what two trainers on one host wait for, and which threads take the cores meanwhile.

Whole jobs of an oracle, a server and two trainers, once for each way to sum dense gradients, in turn. Shares of a step
are the trainers' own; processor time of threads comes from /proc, between the first step that counts and the last.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.other_load import OtherLoad
from benchmarks.jobs.watched_command import CommandError
from benchmarks.jobs.workload import WORKLOADS, Workload

FOLDER = REPOSITORY / "build" / "bench"
WAYS = ("horovod", "mpi")
"""To sum dense gradients; of two trainers a grid is one row, which is `mpi`."""
LAYOUT = RoleLayout(servers=1, trainers=2)
FIRST_STEP = 40
LOOK_EVERY_S = 0.02
HEADINGS = (
    *("dense sums", "samples/s", "step ms", "waiting for sums %"),
    *("compute ms", "trainers' other threads ms", "oracle, server ms", "others' load %"),
)
LEGEND = (
    "compute, other threads, oracle, server: processor time a step, of all their ranks together; "
    "others' load: of the cores, by other programs"
)

Threads = dict[tuple[int, int], float]
"""Processor time in seconds of each thread, by the number of its rank and its own, from 0 for the main thread."""


class _Run(NamedTuple):
    """What one job showed, for a step in the mean."""

    samples_per_s: float
    step_ms: float
    waiting: float
    compute_ms: float
    other_threads_ms: float
    other_roles_ms: float
    others_share: float


def run(arguments: argparse.Namespace) -> Report:
    """Measure; see `command` for the arguments.

    Raises:
        CommandError: a job ended with an error.
    """
    report = Report("waiting")
    FOLDER.mkdir(parents=True, exist_ok=True)
    steps = 40 if arguments.quick else 120
    report.figures |= {"runs": arguments.runs, "steps": steps, "set": arguments.set, "jobs": []}
    for workload in WORKLOADS.values():
        shards = workload.shards(FOLDER, FIRST_STEP + steps + 20, workload.config([]).train.batch_size)
        runs: dict[str, list[_Run]] = {way: [] for way in WAYS}
        for _ in range(arguments.runs):
            for way, found in runs.items():
                found.append(_measure(workload, shards, steps, [f"train.dense_sums={way}", *arguments.set]))
        table = []
        for way, found in runs.items():
            one = _Run(*(median(values) for values in zip(*found, strict=True)))
            report.figures["jobs"].append({"workload": workload.name, "dense_sums": way, "all": found} | one._asdict())
            table.append(_row(way, one))
        report.table(f"{workload.name}, T = {LAYOUT.trainers}", HEADINGS, table)
    report.lines += ["", LEGEND]
    return report


def _row(way: str, one: _Run) -> tuple[str, ...]:
    times = (f"{value:.1f}" for value in (one.compute_ms, one.other_threads_ms, one.other_roles_ms))
    shares = f"{100 * one.waiting:.1f}", f"{100 * one.others_share:.0f}"
    return way, f"{one.samples_per_s:,.0f}", f"{one.step_ms:.1f}", shares[0], *times, shares[1]


def _measure(workload: Workload, shards: Path, steps: int, overrides: list[str]) -> _Run:
    """Run one job, and look at its threads when the first and the last step that count are done."""
    last = FIRST_STEP + steps
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch, OtherLoad() as others:
        output = Path(scratch, "run")
        settings = [
            *(f"data.path={shards}", "data.verify=quick", f"roles.servers={LAYOUT.servers}"),
            *("roles.placement=rank_order", f"train.max_steps={last + 10}", "train.log_every_steps=10"),
            *("train.evaluate=false", "train.checkpoint_at_end=false", f"train.output={output}"),
            *("kernels.linear=onednn", *overrides),
        ]
        command: list[str | Path] = [REPOSITORY / "scripts" / "run_ranks.sh", str(LAYOUT.world_size), sys.executable]
        command += ["-m", "bagpipe_hpc", "train", workload.config_file, *settings]
        log = Path(scratch, "log")
        with log.open("w") as file:
            job = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        _wait_for(job, output, FIRST_STEP)
        before, since = _threads(job.pid), time.monotonic()
        _wait_for(job, output, last)
        after, seconds = _threads(job.pid), time.monotonic() - since
        if job.wait():
            raise CommandError(f"{' '.join(map(str, command))}\nended with {job.returncode}:\n{log.read_text()}")
        counted = [record for record in _records(output) if FIRST_STEP < record["step"] <= last]
    step_ms = 1e3 * seconds / steps

    def spent_ms(*, of_trainers: bool, of_main: bool | None = None) -> float:
        found = 0.0
        for (rank, thread), used_s in after.items():
            if (LAYOUT.role(rank) is Role.TRAINER) is of_trainers and of_main in (None, thread == 0):
                found += used_s - before.get((rank, thread), 0.0)
        return 1e3 * found / steps

    trainers = [trainer for record in counted for trainer in record["trainers"]]
    waited = sum(trainer["wait_reductions_ms"] for trainer in trainers)
    return _Run(
        workload.config([]).train.batch_size / step_ms * 1e3,
        step_ms,
        waited / sum(trainer["total_ms"] for trainer in trainers),
        spent_ms(of_trainers=True, of_main=True),
        spent_ms(of_trainers=True, of_main=False),
        spent_ms(of_trainers=False),
        others.share,
    )


def _wait_for(job: "subprocess.Popen[bytes]", output: Path, step: int) -> None:
    """Wait until a step is recorded, or the job is over."""
    while job.poll() is None and max((record["step"] for record in _records(output)), default=0) < step:
        time.sleep(LOOK_EVERY_S)


def _records(output: Path) -> list[dict[str, Any]]:
    """What the job has said of its progress."""
    with contextlib.suppress(OSError):
        lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return [record for record in records if record["event"] == "progress"]
    return []


def _threads(launcher: int) -> Threads:
    """Of all ranks that a launcher has started, in the order in which it did."""
    found: Threads = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        processes = [
            (process.pid, process)
            for process in psutil.Process(launcher).children(recursive=True)
            if process.cmdline()[1:4] == ["-m", "bagpipe_hpc", "train"]
        ]
        for rank, (_, process) in enumerate(sorted(processes)):
            for thread, times in enumerate(sorted(process.threads())):
                found[rank, thread] = times.user_time + times.system_time
    return found
