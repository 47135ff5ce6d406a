"""`python -m benchmarks step_price`: what a step takes beside its samples.

Whole jobs on one host with slices of a few samples and of more, one thread a trainer. What is left of a step without
samples is its price (`--compute-us-per-step` of `bagpipe simulate`): the line through the smallest and the largest
slice, at none.
"""

import argparse
from typing import NamedTuple

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.own_settings import require_free
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.watched_steps import FOLDER, RECORD_STEPS, WatchedSteps, watch_steps
from benchmarks.jobs.workload import WORKLOADS

WORKLOAD = WORKLOADS["quickstart"]
LEAST_FIRST_STEP = 200
"""Steps before those that count, also where the window is shorter."""
STEPS, STEPS_OF_LARGE, LARGE = 1000, 300, 256
"""That count, and how many of slices that are large, from so many samples on."""
HEADINGS = (
    *("slice", "step ms", "compute ms"),
    *("trainer's other threads ms", "oracle, server ms", "others' load %"),
)
LEGEND = (
    "compute, other threads: processor time a step and trainer; oracle, server: of both together; "
    "others' load: of the cores, by other programs"
)


class _Run(NamedTuple):
    """What one job showed, for a step in the mean."""

    step_ms: float
    compute_ms: float
    other_threads_ms: float
    other_roles_ms: float
    others_share: float

    @classmethod
    def of(cls, found: WatchedSteps, trainers: int) -> "_Run":
        own = found.compute_ms / trainers, found.other_threads_ms / trainers
        return cls(found.step_ms, *own, found.other_roles_ms, found.others_share)


def run(arguments: argparse.Namespace) -> Report:
    """Measure; see `command` for the arguments.

    Raises:
        CommandError: a job ended with an error, or too early.
        ConfigError: a setting is wrong, or the benchmark's own.
    """
    require_free(arguments.set, ["train.batch_size"])
    report = Report("step_price")
    FOLDER.mkdir(parents=True, exist_ok=True)
    steps_of = {samples: _steps(samples, is_quick=arguments.quick) for samples in sorted(arguments.slices)}
    report.figures |= {"runs": arguments.runs, "steps": steps_of, "set": arguments.set, "jobs": [], "prices": []}
    lookahead = WORKLOAD.config(arguments.set).lookahead
    counted = {
        samples: StepRange.steady(lookahead, steps, at_least=LEAST_FIRST_STEP, every=RECORD_STEPS)
        for samples, steps in steps_of.items()
    }
    rows = max(max(arguments.trainers) * samples * steps.total for samples, steps in counted.items())
    shards = WORKLOAD.shards(FOLDER, 1, rows)
    for trainers in arguments.trainers:
        layout = RoleLayout(servers=1, trainers=trainers)
        runs: dict[int, list[_Run]] = {samples: [] for samples in steps_of}
        for _ in range(arguments.runs):
            for samples, found in runs.items():
                settings = [f"train.batch_size={trainers * samples}", "train.threads=1", *arguments.set]
                watched = watch_steps(WORKLOAD, shards, layout, counted[samples], settings)
                found.append(_Run.of(watched, trainers))
        medians = {}
        for samples, found in runs.items():
            medians[samples] = one = _Run(*(median(values) for values in zip(*found, strict=True)))
            figures = {"trainers": trainers, "slice": samples, "all": found}
            report.figures["jobs"].append(figures | one._asdict())
        report.table(f"T = {trainers}", HEADINGS, [_row(samples, one) for samples, one in medians.items()])
        if len(medians) > 1:
            step, compute = (_without_samples(medians, field) for field in ("step_ms", "compute_ms"))
            report.figures["prices"].append({"trainers": trainers, "step_ms": step, "compute_ms": compute})
            report.lines += ["", f"without samples: a step of {step:.2f} ms, of which {compute:.2f} ms are computing"]
    report.lines += ["", LEGEND]
    return report


def _steps(samples: int, *, is_quick: bool) -> int:
    """That count with slices of so many samples."""
    return 100 if is_quick else STEPS_OF_LARGE if samples >= LARGE else STEPS


def _without_samples(medians: dict[int, _Run], field: str) -> float:
    """What is left of a time without samples, by the smallest and the largest slice."""
    few, many = min(medians), max(medians)
    of_few, of_many = (getattr(medians[samples], field) for samples in (few, many))
    return float(f"{(of_few * many - of_many * few) / (many - few):.4g}")


def _row(samples: int, one: _Run) -> tuple[str, ...]:
    times = (f"{value:.2f}" for value in (one.step_ms, one.compute_ms, one.other_threads_ms, one.other_roles_ms))
    return f"{samples:,}", *times, f"{100 * one.others_share:.0f}"
