"""`python -m benchmarks waiting`: what two trainers on one host wait for, and which threads take the cores meanwhile.

Whole jobs of an oracle, a server and two trainers, once for each way to sum dense gradients, in turn. Shares of a step
are the trainers' own; processor time of threads comes from /proc, between the first step that counts and the last.
"""

import argparse
from typing import NamedTuple

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.own_settings import require_free
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.watched_steps import FOLDER, RECORD_STEPS, WatchedSteps, watch_steps
from benchmarks.jobs.workload import WORKLOADS

WAYS = ("horovod", "mpi")
"""To sum dense gradients; of two trainers a grid is one row, which is `mpi`."""
LAYOUT = RoleLayout(servers=1, trainers=2)
LEAST_FIRST_STEP = 40
"""Steps before those that count, also where the window is shorter."""
HEADINGS = (
    *("dense sums", "samples/s", "step ms", "waiting for sums %"),
    *("compute ms", "trainers' other threads ms", "oracle, server ms", "others' load %"),
)
LEGEND = (
    "compute, other threads, oracle, server: processor time a step, of all their ranks together; "
    "others' load: of the cores, by other programs"
)


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
        CommandError: a job ended with an error, or too early.
        ConfigError: a setting is wrong, or the benchmark's own.
    """
    require_free(arguments.set, ["train.dense_sums"])
    report = Report("waiting")
    FOLDER.mkdir(parents=True, exist_ok=True)
    steps = 40 if arguments.quick else 120
    report.figures |= {"runs": arguments.runs, "steps": steps, "set": arguments.set, "jobs": []}
    for workload in WORKLOADS.values():
        config = workload.config(arguments.set)
        counted = StepRange.steady(config.lookahead, steps, at_least=LEAST_FIRST_STEP, every=RECORD_STEPS)
        batch_size = config.train.batch_size
        shards = workload.shards(FOLDER, counted.total, batch_size)
        runs: dict[str, list[_Run]] = {way: [] for way in WAYS}
        for _ in range(arguments.runs):
            for way, found in runs.items():
                settings = [f"train.dense_sums={way}", *arguments.set]
                found.append(_of_job(watch_steps(workload, shards, LAYOUT, counted, settings), batch_size))
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


def _of_job(found: WatchedSteps, batch_size: int) -> _Run:
    waited = sum(mean["wait_reductions_ms"] for mean in found.told)
    return _Run(
        batch_size / found.step_ms * 1e3,
        found.step_ms,
        waited / sum(mean["total_ms"] for mean in found.told),
        found.compute_ms,
        found.other_threads_ms,
        found.other_roles_ms,
        found.others_share,
    )
