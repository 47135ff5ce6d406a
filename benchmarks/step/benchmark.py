"""`python -m benchmarks step`: whole training jobs over links of several speeds, and where a step's time goes.

A look-ahead of 1 fetches every row of a batch before it and writes it back after it: what plain synchronous training
with remote rows does. All jobs of a workload run in turn and back again, so that a change of the machine's load meets
them alike.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.links import LINKS, Link, usable_links
from benchmarks.jobs.other_load import wait_for_quiet
from benchmarks.jobs.workload import WORKLOADS, Workload
from benchmarks.step.figures import StepFigures, Traffic
from benchmarks.step.table import HEADINGS, LEGEND, table_rows
from benchmarks.step.training_job import SERVERS, Job, JobResult, check_overrides, run_job, steady_steps

FOLDER = REPOSITORY / "build" / "bench"
WINDOWS = (1, 2, 10, 50, 200)
TRAINERS = (1, 2, 4)
SWEPT_TRAINERS = 2
"""The number of trainers for which all windows are measured; for others, the first and the configuration's."""
QUICK_WINDOWS = (1, 10)

_Entry = TypeVar("_Entry")


def run(arguments: argparse.Namespace) -> Report:
    """Measure; see `command` for the arguments.

    Raises:
        ConfigError: a workload or link is unknown, or a setting is wrong, or the jobs' own.
        RanksFailedError: a job ended with an error.
    """
    check_overrides(arguments.set)
    report = Report("step")
    links = usable_links(_chosen(LINKS, arguments.link, "link"), report)
    FOLDER.mkdir(parents=True, exist_ok=True)
    measured_steps = arguments.steps or (40 if arguments.quick else 100)
    report.figures |= {"runs": arguments.runs, "servers": SERVERS, "measured_steps": measured_steps}
    report.figures |= {"spread": arguments.spread, "set": arguments.set, "others_at_most": arguments.others_at_most}
    report.figures["jobs"] = cells = []
    for workload in _chosen(WORKLOADS, arguments.workload, "workload"):
        config = workload.config(arguments.set)
        jobs = jobs_of(workload, links, config.lookahead.batches, arguments)
        for job, results in _run_all(jobs, measured_steps, config.train.batch_size, arguments).items():
            counted = [result for result in results if result.others_share <= arguments.others_at_most]
            if counted:
                cells.append(job_figures(job, counted, config))
            else:
                report.lines.append(f"{job}: others took too much of the cores in every run")
    for title, rows in table_rows(cells).items():
        report.table(title, HEADINGS, rows)
    report.lines += ["", LEGEND]
    return report


def _chosen(known: dict[str, _Entry], names: Sequence[str] | None, what: str) -> list[_Entry]:
    """The named entries, or all of them."""
    for name in names or ():
        if name not in known:
            raise ConfigError(f"--{what} {name}: use one of {', '.join(known)}")
    return [known[name] for name in names or known]


def jobs_of(workload: Workload, links: Iterable[Link], default_window: int, arguments: argparse.Namespace) -> list[Job]:
    """The combinations that are measured on a workload whose configuration looks `default_window` batches ahead."""
    swept: Sequence[int] = QUICK_WINDOWS if arguments.quick else sorted({*WINDOWS, default_window})
    trainers = (SWEPT_TRAINERS,) if arguments.quick else TRAINERS
    return [
        Job(workload, link, count, lookahead, arguments.spread)
        for link in links
        for count in arguments.trainers or trainers
        for lookahead in arguments.lookahead or (swept if count == SWEPT_TRAINERS else (1, default_window))
    ]


def _run_all(
    jobs: list[Job], measured_steps: int, batch_size: int, arguments: argparse.Namespace
) -> dict[Job, list[JobResult]]:
    """Run all jobs of a workload, each as often as asked for."""
    most_steps = max((steady_steps(job.lookahead, measured_steps).total for job in jobs), default=0)
    results: dict[Job, list[JobResult]] = {job: [] for job in jobs}
    for number in range(arguments.runs):
        for job in jobs if number % 2 == 0 else reversed(jobs):
            shards = job.workload.shards(FOLDER, most_steps, batch_size)
            if arguments.quiet_s and not wait_for_quiet(arguments.quiet_s):
                print("step: others keep the cores busy; measuring all the same", file=sys.stderr)
            result = run_job(job, shards, measured_steps, arguments.set, FOLDER)
            results[job].append(result)
            print(
                f"run {number + 1}, {job}: {batch_size / result.figures.step_ms * 1e3:,.0f} samples/s, "
                f"others took {result.others_share:.0%} of the cores",
                file=sys.stderr,
                flush=True,
            )
    return results


def job_figures(job: Job, results: Sequence[JobResult], config: Config) -> dict[str, Any]:
    """What the JSON line says of a job: medians over its runs."""
    figures = StepFigures.median([result.figures for result in results])
    summary = results[0].summary
    record = RowRecord.of(config)
    traffic = Traffic.of_step(
        figures, record, summary["dense_weights"], job.trainers, spread=job.spread, server_hosts=job.server_hosts
    )
    rates = [config.train.batch_size / result.figures.step_ms * 1e3 for result in results]
    return {
        "workload": job.workload.name,
        "link": job.link.name,
        "trainers": job.trainers,
        "spread": job.spread,
        "server_hosts": job.server_hosts,
        "lookahead": job.lookahead,
        "samples_per_s": median(rates),
        "samples_per_s_of_runs": [round(rate) for rate in rates],
        "step_ms": round(figures.step_ms, 3),
        "compute_ms": round(figures.compute_ms, 3),
        "compute_share": round(figures.compute_ms / figures.step_ms, 4),
        "reductions_share": round(figures.wait_reductions_ms / figures.step_ms, 4),
        "rows_share": round(figures.wait_rows_ms / figures.step_ms, 4),
        "rows_fetched": round(figures.rows_fetched),
        "rows_written_back": round(figures.rows_written_back),
        "rows_reduced": round(figures.rows_reduced),
        "cache_rows": summary["cache_rows"],
        "row_bytes_on_link": round(traffic.row_bytes),
        "reduction_bytes_on_link": round(traffic.reduction_bytes),
        "link_ms": round(traffic.link_ms(job.link.bytes_per_s), 3),
        "others_share_of_runs": [round(result.others_share, 2) for result in results],
    }
