"""`python -m benchmarks simulate`: what `bagpipe simulate` predicts, beside measured jobs of benchmark `step`.

Of the jobs with the same workload, trainers and hosts, one gives the time of a sample; from it and the link's two
numbers all others are predicted.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.sections.train import MOVER
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.prediction import Prediction, predict
from bagpipe_hpc.tools.report import Report, median
from bagpipe_hpc.tools.simulate.trace import plan_trace, shards_trace, step_orders, trace_policy
from benchmarks.jobs.links import LINKS, SLOW_LINKS, Link, say_left_out, usable_links
from benchmarks.jobs.workload import WORKLOADS
from benchmarks.step import benchmark as step
from benchmarks.step.training_job import steady_steps

_MPI_EXTRA_LATENCY_US = {"native": 0.0, "1gbit": 70.0}
_FURTHER_EXTRA_LATENCY_US = 10.0
"""What MPI's latency exceeds the link's setting by (docs/emulated-hosts.md), by link and of all others."""

Cell = dict[str, Any]


def run(arguments: argparse.Namespace) -> Report:
    """Compare; see `command` for the arguments.

    Raises:
        ConfigError: the file of `--measured` has no line of benchmark `step`.
        RanksFailedError: a job ended with an error.
    """
    report = Report("simulate_check")
    measured = _from_file(arguments.measured, report) if arguments.measured else list(_measure(arguments, report))
    cells = [cell for line in measured for cell in compare(line)]
    checked = [cell for cell in cells if not cell["calibrates"]]
    report.table("measured and predicted steps", _HEADINGS, [_row(cell) for cell in cells])
    report.figures |= {"runs": arguments.runs, "jobs": cells}
    if checked:
        errors = [abs(cell["error"]) for cell in checked]
        report.figures |= {"median_error": median(errors), "largest_error": round(max(errors), 4)}
        report.lines += ["", f"median error {median(errors):.1%}, largest {max(errors):.1%} of the measured step"]
    return report


def _from_file(path: Path, report: Report) -> list[dict[str, Any]]:
    """The last line of benchmark `step` in a file of JSON lines; the report says which links it lacks."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    of_step = [line for line in lines if line.get("benchmark") == "step"]
    if not of_step:
        raise ConfigError(f"--measured {path}: it has no line of benchmark step; make one with its --save")
    for link in of_step[-1].get("links_left_out", ()):
        say_left_out(report, link, f"{path} was measured without it")
    return of_step[-1:]


def _measure(arguments: argparse.Namespace, report: Report) -> Iterable[dict[str, Any]]:
    """Jobs on one host, on two, and on four: three trainers with a host each; the report says what is left out."""
    common = {"quick": arguments.quick, "runs": arguments.runs, "quiet_s": None, "others_at_most": 1.0, "set": []}
    links = usable_links([LINKS["1gbit"]] if arguments.quick else LINKS.values(), report)
    every, emulated = [link.name for link in links], [link.name for link in links if link.is_emulated]
    if arguments.quick:
        sweeps = [{"workload": ["quickstart"], "link": every, "trainers": [2], "lookahead": [1, 10]}]
    else:
        sweeps = [
            {"workload": None, "link": every, "trainers": [1, 2], "lookahead": [1, 10, 50]},
            {"workload": None, "link": emulated, "trainers": [3], "lookahead": [1, 10, 50], "spread": True},
        ]
    for sweep in (sweep for sweep in sweeps if sweep["link"]):
        yield step.run(argparse.Namespace(**{"spread": False, "steps": None, **common, **sweep})).figures


def compare(line: dict[str, Any]) -> list[Cell]:
    """Predict the jobs of a line of benchmark `step` whose shards are still in `build/bench`."""
    jobs: list[Cell] = line["jobs"]
    groups: dict[tuple[str, int], list[Cell]] = {}
    for job in jobs:
        groups.setdefault((job["workload"], job["trainers"]), []).append(job)
    compared = []
    for group in groups.values():
        source = calibrating(group)
        # What is left of its step without waiting for rows, and without sums as long as the model has them: the rest of
        # the time in sums is waiting for a trainer that had less of its core.
        sums_s = predict_job(source, source["compute_ms"], line).wait_reductions_s
        busy_ms = source["step_ms"] * (1 - source["rows_share"]) - sums_s * 1e3
        compared += [
            {
                "workload": job["workload"],
                "link": job["link"],
                "trainers": job["trainers"],
                "spread": job["spread"],
                "lookahead": job["lookahead"],
                "calibrates": job is source,
                "measured_ms": job["step_ms"],
                "measured_rows_share": job["rows_share"],
                "measured_reductions_share": job["reductions_share"],
            }
            | _predicted(job, busy_ms, line)
            for job in group
        ]
    return compared


def calibrating(group: list[Cell]) -> Cell:
    """The job that gives the time of a sample: the longest window on the fastest emulated link, which waits least."""
    emulated = [job for job in group if LINKS[job["link"]].is_emulated] or group
    return max(emulated, key=lambda job: (LINKS[job["link"]].gbit_per_s, job["lookahead"]))


def cluster_of(
    link: Link, trainers: int, compute_s_per_sample: float, *, spread: bool, server_hosts: int = 1
) -> Cluster:
    """The cluster that benchmark `step` runs a job on."""
    return Cluster(
        trainers=trainers,
        compute_s_per_sample=compute_s_per_sample,
        trainers_per_host=1 if spread else trainers,
        server_hosts=server_hosts if link.is_emulated else 0,
        bytes_per_s=link.bytes_per_s,
        latency_s=(link.latency_us + _MPI_EXTRA_LATENCY_US.get(link.name, _FURTHER_EXTRA_LATENCY_US)) * 1e-6,
    )


def _predicted(job: Cell, busy_ms: float, line: dict[str, Any]) -> dict[str, Any]:
    prediction = predict_job(job, busy_ms, line)
    step_ms = prediction.step_s * 1e3
    return {
        "predicted_ms": round(step_ms, 3),
        "predicted_rows_share": round(prediction.wait_rows_s / prediction.step_s, 4),
        "predicted_reductions_share": round(prediction.wait_reductions_s / prediction.step_s, 4),
        "error": round(step_ms / job["step_ms"] - 1, 4),
    }


def predict_job(job: Cell, busy_ms: float, line: dict[str, Any]) -> Prediction:
    """Predict a job whose trainers are busy for so long in a step."""
    workload = WORKLOADS[job["workload"]]
    most_steps = max(
        steady_steps(other["lookahead"], line["measured_steps"]).total
        for other in line["jobs"]
        if other["workload"] == job["workload"]
    )
    batch_size = workload.config(line["set"]).train.batch_size
    shards = workload.shards(step.FOLDER, most_steps, batch_size)
    settings = [
        f"data.path={shards}",
        "data.verify=quick",
        f"lookahead.batches={job['lookahead']}",
        "lookahead.group=0",
    ]
    config = load_config(workload.config_file, [*line["set"], *settings])
    trace = shards_trace(config)
    window = Window(config.lookahead.batches, config.lookahead.group_batches)
    policy = trace_policy(trace, config, job["trainers"])
    planned = plan_trace(trace, policy, window, line["measured_steps"] // 2)
    cluster = cluster_of(
        (LINKS | SLOW_LINKS)[job["link"]],
        job["trainers"],
        busy_ms * 1e-3 * job["trainers"] / batch_size,
        spread=job["spread"],
        server_hosts=job.get("server_hosts", 1),  # results of before 2026-11-29 do not have it
    )
    train = config.train
    cluster = replace(cluster, dense_sums=train.dense_sums, has_sums_thread=train.sums_thread != MOVER)
    return predict(planned.loads, window, cluster, RowRecord.of(config), step_orders(config, trace).on(cluster))


_HEADINGS = ("job", "L", "measured ms", "predicted ms", "error", "rows", "predicted", "reductions", "predicted", "")


def _row(cell: Cell) -> list[str]:
    hosts = ", a host each" if cell["spread"] else ""
    return [
        f"{cell['workload']}, {cell['link']}, T = {cell['trainers']}{hosts}",
        str(cell["lookahead"]),
        f"{cell['measured_ms']:.1f}",
        f"{cell['predicted_ms']:.1f}",
        f"{cell['error']:+.1%}",
        f"{cell['measured_rows_share']:.1%}",
        f"{cell['predicted_rows_share']:.1%}",
        f"{cell['measured_reductions_share']:.1%}",
        f"{cell['predicted_reductions_share']:.1%}",
        "gives the time of a sample" if cell["calibrates"] else "",
    ]
