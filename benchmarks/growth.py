"""`python -m benchmarks growth`: how a step grows with trainers where links decide, measured and predicted.

Each trainer has a host. From the step of one alone and the two numbers of the link those of more are predicted. Nothing
of theirs is fitted, in contrast to `simulate`, where each number of trainers has a time of a sample of its own. By
default links are so slow that cores wait for them, though all ranks share a few: what is checked is how sums and rows
grow, not how ranks compute.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.links import LINKS, SLOW_LINKS, usable_links
from benchmarks.jobs.own_settings import require_free
from benchmarks.jobs.paced_dlrm import NAME as PACED_DLRM
from benchmarks.jobs.workload import WORKLOADS
from benchmarks.simulate import predict_job
from benchmarks.step.benchmark import FOLDER, job_figures
from benchmarks.step.training_job import SERVERS, Job, check_overrides, run_job, steady_steps

HEADINGS = (
    *("T", "measured ms", "predicted ms", "error", "waiting for sums ms", "predicted ms"),
    *("for rows ms", "predicted ms", "others' load %"),
)
_MEDIANS = ("step_ms", "reductions_share", "rows_share")


def run(arguments: argparse.Namespace) -> Report:
    """Measure and predict; see `command` for the arguments.

    Raises:
        ConfigError: a setting is wrong, or the benchmark's own, or trainers cannot share a batch evenly.
        RanksFailedError: a job ended with an error.
    """
    require_free(arguments.set, ["train.batch_size", "train.threads", "model.name", "model.us_per_sample"])
    check_overrides(arguments.set)
    trainers = sorted({1, *arguments.trainers})
    samples = samples_of(trainers, arguments.slice, arguments.batch)
    FOLDER.mkdir(parents=True, exist_ok=True)
    workload = WORKLOADS[arguments.workload]
    apart = arguments.servers is not None
    servers = arguments.servers if apart else SERVERS
    report = Report("growth")
    report.figures |= {"runs": arguments.runs, "link": arguments.link, "batch_sizes": samples}
    report.figures |= {
        "us_per_sample": arguments.us_per_sample,
        "workload": workload.name,
        "servers": servers,
        "servers_apart": apart,
    }
    report.figures |= {"lookahead": arguments.lookahead, "set": arguments.set, "jobs": []}
    for link in usable_links([(LINKS | SLOW_LINKS)[arguments.link]], report):
        jobs = [Job(workload, link, count, arguments.lookahead, True, servers, apart) for count in trainers]
        lines: dict[int, list[dict[str, Any]]] = {count: [] for count in trainers}
        for number in range(arguments.runs):
            for job in jobs if number % 2 == 0 else reversed(jobs):
                lines[job.trainers].append(_measure(job, samples[job.trainers], arguments))
        cells = compare(lines)
        report.figures["jobs"] += cells
        shared = f"batches of {arguments.batch}" if arguments.batch else f"{arguments.slice} samples a trainer"
        paced = f", {arguments.us_per_sample:g} us a sample asleep" if arguments.us_per_sample else ""
        title = f"{workload.name}, {link.name}, {shared}, a host each{paced}"
        report.table(title, HEADINGS, [_row(cell) for cell in cells])
    return report


def samples_of(trainers: Sequence[int], slice_size: int, batch_size: int | None) -> dict[int, int]:
    """Samples of a batch by the number of trainers: a slice for each, or always as many.

    Raises:
        ConfigError: some trainers would have a sample more than others.
    """
    if batch_size is None:
        return {count: count * slice_size for count in trainers}
    for count in trainers:
        if batch_size % count:
            raise ConfigError(f"--batch {batch_size}: {count} trainers cannot share it; use a multiple of {count}")
    return dict.fromkeys(trainers, batch_size)


def _measure(job: Job, batch_size: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One run, as a line of benchmark `step`."""
    paced = [f"model.name={PACED_DLRM}", f"model.us_per_sample={pace}"] if (pace := arguments.us_per_sample) else []
    overrides = [f"train.batch_size={batch_size}", "train.threads=1", *paced, *arguments.set]
    steps = arguments.steps or (40 if arguments.quick else 100)
    shards = job.workload.shards(FOLDER, steady_steps(job.lookahead, steps).total, batch_size)
    result = run_job(job, shards, steps, overrides, FOLDER)
    figures = job_figures(job, [result], job.workload.config(overrides))
    return {"jobs": [figures], "batch_size": batch_size, "measured_steps": steps, "set": overrides}


def compare(lines: Mapping[int, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Measured and predicted steps by the number of trainers; the first is one, whose step predicts the others.

    Args:
        lines: of benchmark `step`, with one job each and its batch size, for each run of so many trainers.
    """
    found = {count: [line["jobs"][0] for line in runs] for count, runs in lines.items()}
    jobs = {count: _median_job(own) for count, own in found.items()}
    alone = jobs[1]
    ms_of_sample = alone["step_ms"] * (1 - alone["rows_share"]) / lines[1][0]["batch_size"]
    cells = []
    for count, job in jobs.items():
        own, line = found[count], lines[count][0]
        prediction = predict_job(job, ms_of_sample * line["batch_size"] / count, line)
        predicted_ms = prediction.step_s * 1e3
        cells.append(
            {
                "trainers": count,
                "measured_ms": round(job["step_ms"], 3),
                "measured_ms_of_runs": [one["step_ms"] for one in own],
                "predicted_ms": round(predicted_ms, 3),
                "error": round(predicted_ms / job["step_ms"] - 1, 4),
                "measured_sums_ms": round(job["step_ms"] * job["reductions_share"], 3),
                "predicted_sums_ms": round(prediction.wait_reductions_s * 1e3, 3),
                "measured_rows_ms": round(job["step_ms"] * job["rows_share"], 3),
                "predicted_rows_ms": round(prediction.wait_rows_s * 1e3, 3),
                "others_share": max(share for one in own for share in one["others_share_of_runs"]),
            }
        )
    return cells


def _median_job(jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A job of several runs, with the medians of what is compared."""
    return jobs[0] | {name: median([job[name] for job in jobs]) for name in _MEDIANS}


def _row(cell: dict[str, Any]) -> list[str]:
    return [
        str(cell["trainers"]),
        f"{cell['measured_ms']:.2f}",
        f"{cell['predicted_ms']:.2f}",
        f"{cell['error']:+.1%}",
        f"{cell['measured_sums_ms']:.2f}",
        f"{cell['predicted_sums_ms']:.2f}",
        f"{cell['measured_rows_ms']:.2f}",
        f"{cell['predicted_rows_ms']:.2f}",
        f"{100 * cell['others_share']:.0f}",
    ]
