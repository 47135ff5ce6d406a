"""`python -m benchmarks volumes`: rows that a trainer moves for a batch, with rows replicated and with one home.

First of whole jobs, each trainer on an emulated host of its own: what they counted, beside what the plans of the same
batches say. Then of look-ups that are drawn by popularity, for more trainers than there are hosts: plans alone.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.plan.batch_plan import BatchPlan, GroupPlan, ReceivedPlan
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.tools.report import Report
from bagpipe_hpc.tools.simulate.trace import Trace, shards_trace, synthetic_trace, trace_policy
from benchmarks.jobs.links import LINKS, Link, run_ranks, usable_links
from benchmarks.jobs.workload import WORKLOADS
from benchmarks.step.benchmark import FOLDER

SHARINGS = ("replicated", "home")
MOVED = ("fetched", "written", "copied", "sent_home", "summed", "updated")
"""What a trainer does with rows: gets and puts at servers; copies from others and gradients to them; sums; updates."""

Cell = dict[str, Any]


def run(arguments: argparse.Namespace) -> Report:
    """Count; see `command` for the arguments.

    Raises:
        RanksFailedError: a job ended with an error.
    """
    report = Report("volumes")
    FOLDER.mkdir(parents=True, exist_ok=True)
    steps = 12 if arguments.quick else 40
    jobs = [
        job_cell(link, trainers, sharing, steps)
        for link in usable_links([LINKS[name] for name in arguments.link or ("10gbit", "1gbit")], report)
        for trainers in arguments.trainers or ([2] if arguments.quick else [1, 2, 4, 8])
        for sharing in SHARINGS
    ]
    report.figures |= {"jobs": jobs}
    report.table(
        "rows a trainer and batch: counted in the run, beside its plans", _HEADINGS, [_row(job) for job in jobs]
    )
    if arguments.rows:
        drawn = [
            drawn_cell(arguments, trainers, sharing)
            for trainers in arguments.drawn_trainers or ([2] if arguments.quick else [2, 8, 64])
            for sharing in SHARINGS
        ]
        title = f"{arguments.rows:,} rows by Zipf 1.05, batches of {arguments.batch_size:,}, L = {arguments.lookahead}"
        report.figures |= {"drawn": drawn}
        report.table(title, _HEADINGS, [_row(cell) for cell in drawn])
    return report


def job_cell(link: Link, trainers: int, sharing: str, steps: int) -> Cell:
    """A job on emulated hosts, and the plans of its batches: means over trainers and steps."""
    workload = WORKLOADS["quickstart"]
    settings = ["data.verify=quick", f"cache.sharing={sharing}", "lookahead.batches=10", "lookahead.group=0"]
    settings += ["roles.servers=1", "roles.placement=rank_order", "train.epochs=1", f"train.max_steps={steps}"]
    settings += [f"train.log_every_steps={steps}", f"train.log_trainers={trainers}"]
    settings += ["train.evaluate=false", "train.checkpoint_at_end=false"]
    shards = workload.shards(FOLDER, steps, workload.config(settings).train.batch_size)
    settings.append(f"data.path={shards}")
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        output = Path(scratch, "run")
        command: list[str | Path] = [sys.executable, "-m", "bagpipe_hpc", "train", workload.config_file, *settings]
        hosts = [2, *[1] * trainers] if link.is_emulated else [2 + trainers]
        run_ranks(hosts, link, [*command, f"train.output={output}"], share=FOLDER)
        lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    (told,) = (event["trainers"] for line in lines if (event := json.loads(line))["event"] == "progress")
    config = load_config(workload.config_file, settings)
    window = Window(config.lookahead.batches, config.lookahead.group_batches)
    stats, _ = planned(shards_trace(config), config, trainers, window, steps, range(steps))
    counted = [{name: round(value * steps) for name, value in _moved(of_one).items()} for of_one in told]
    wanted = [{name: round(value * steps) for name, value in _moved(of_one.per_step()).items()} for of_one in stats]
    return {
        "job": f"{link.name}, T = {trainers}, {sharing}",
        "moved": _mean(counted, steps),
        "planned": _mean(wanted, steps),
        "equal": counted == wanted,
        "bytes_each_way": _bytes_each_way(_mean(counted, steps), trainers, config),
    }


def drawn_cell(arguments: argparse.Namespace, trainers: int, sharing: str) -> Cell:
    """Plans of drawn look-ups in the middle of a segment."""
    settings = [f"train.batch_size={arguments.batch_size}", f"cache.sharing={sharing}"]
    config = load_config(WORKLOADS["quickstart"].config_file, settings)
    lookahead = arguments.lookahead
    window = Window(lookahead, replace(config.lookahead, batches=lookahead, group=0).group_batches)
    counted = range(lookahead, lookahead + arguments.batches)
    trace = synthetic_trace(config, arguments.rows, 1.05)
    stats, size = planned(trace, config, trainers, window, counted.stop + lookahead, counted)
    return {
        "job": f"T = {trainers}, {sharing}",
        "moved": _mean([_moved(of_one.per_step()) for of_one in stats], 1),
        "resident": size.shared_slots + size.private_slots,
        "bytes_each_way": _bytes_each_way(_mean([_moved(of_one.per_step()) for of_one in stats], 1), trainers, config),
    }


def _bytes_each_way(moved: dict[str, float], trainers: int, config: Config) -> int:
    """What a trainer sends to others in a step, and gets: a sum goes round as shares of it, there and back."""
    rows = moved["copied"] + moved["sent_home"]
    if config.cache.sharing == "replicated":
        rows = 2 * (trainers - 1) / trainers * moved["summed"]
    return round(4 * config.model.embedding_dim * rows)


def planned(
    trace: Trace, config: Config, trainers: int, window: Window, batches: int, counted: range
) -> tuple[list[StepStats], PlannerSize]:
    """What the plans of some batches ask of each trainer, and the slots that all need."""
    planner = trace_policy(trace, config, trainers).planner(window)
    stats = [StepStats() for _ in range(trainers)]
    for number, plan in enumerate(plan_segment(planner, trace.batches(batches))):
        if number in counted:
            count(plan, stats)
    return stats, planner.size()


def count(plan: BatchPlan, stats: list[StepStats]) -> None:
    """Add what a plan asks of each trainer."""
    for own, of_one in zip(plan.trainers, stats, strict=True):
        of_one.count_plan(ReceivedPlan((GroupPlan(plan.shared, own),)))


def _moved(told: dict[str, float]) -> dict[str, float]:
    """By the names of `MOVED`, from what a trainer tells of a mean step."""
    summed = told["reduced_now"] + told["reduced_later"]
    values = (
        told["rows_fetched"],
        told["rows_written_back"],
        told["copied"],
        told["sent_home"],
        summed,
        summed + told["private"],
    )
    return dict(zip(MOVED, values, strict=True))


def _mean(of_trainers: list[Any], steps: int) -> dict[str, float]:
    return {name: round(sum(one[name] for one in of_trainers) / len(of_trainers) / steps, 1) for name in MOVED}


_HEADINGS = ("", *(name.replace("_", " ") for name in MOVED), "resident", "bytes to trainers", "plans say")


def _row(cell: Cell) -> list[str]:
    moved = [f"{cell['moved'][name]:,.0f}" for name in MOVED]
    said = {True: "the same", False: str(cell.get("planned"))}[cell["equal"]] if "equal" in cell else ""
    resident = f"{cell['resident']:,}" if "resident" in cell else ""
    return [cell["job"], *moved, resident, f"{cell['bytes_each_way']:,}", said]
