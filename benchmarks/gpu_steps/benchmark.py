"""`python -m benchmarks gpu_steps`: what a GPU does in a trainer's steps, by torch's profiler.

One trainer on the GPU, oracle and servers beside it. The time of a step is that of as many steps before the profiled
ones: a profiled step takes longer.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report
from benchmarks.gpu_steps.timeline import COPIES, KINDS, REST, busy_us, by_kind, gpu_work
from benchmarks.jobs.links import LINKS, run_ranks
from benchmarks.jobs.step_range import steps_behind
from benchmarks.jobs.workload import WORKLOADS, Workload

_FOLDER = REPOSITORY / "build" / "bench"
_PROGRAM = "benchmarks.gpu_steps.profiled_training"
_RANKS = 3


def run(arguments: argparse.Namespace) -> Report:
    """Profile the workloads.

    Args:
        arguments: `workload`, names or None; `steps`, `timelines` and `set`; `quick` takes the first workload alone.

    Raises:
        ConfigError: a workload is unknown.
        RanksFailedError: a run ended with an error.
    """
    report = Report("gpu_steps")
    if unknown := [name for name in arguments.workload or () if name not in WORKLOADS]:
        raise ConfigError(f"--workload {unknown[0]}: use one of {', '.join(WORKLOADS)}")
    if not torch.cuda.is_available():
        report.lines.append("not run: torch sees no GPU here")
        report.figures["not_run"] = ["torch sees no GPU here"]
        return report
    names = arguments.workload or list(WORKLOADS)[: 1 if arguments.quick else None]
    report.figures["gpu"] = gpu = torch.cuda.get_device_name()
    found = {name: _measure(WORKLOADS[name], arguments) for name in names}
    report.figures["workloads"] = found
    kinds = [*KINDS, *COPIES.values(), REST]
    headings = ["", "step", "GPU busy", "at its compute", "at the mover's", *kinds]
    rows = [[name, *(f"{figures[key]:.3f}" for key in headings[1:])] for name, figures in found.items()]
    report.table(f"{gpu}, one trainer: ms a step", headings, rows)
    return report


def _measure(workload: Workload, arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a step, by headings."""
    config = workload.config(arguments.set)
    steps = arguments.steps
    first = config.lookahead.batches + steps + 1
    last = first + steps - 1
    total = last + steps_behind(config.lookahead)
    shards = workload.shards(_FOLDER, total, config.train.batch_size)
    with tempfile.TemporaryDirectory(dir=_FOLDER) as scratch:
        timeline = Path(scratch, "timeline.json")
        settings = [
            *(f"data.path={shards}", "data.verify=quick", "roles.servers=1", f"train.output={scratch}/run"),
            *(f"train.max_steps={total}", "train.epochs=1", "train.evaluate=false", "train.device=cuda"),
            *("train.checkpoint_at_end=false", *arguments.set),
        ]
        command = [sys.executable, "-m", _PROGRAM, str(first), str(last), timeline, workload.config_file, *settings]
        printed = run_ranks([_RANKS], LINKS["native"], command, share=_FOLDER)
        text = timeline.read_text(encoding="utf-8")
    if arguments.timelines:
        arguments.timelines.mkdir(parents=True, exist_ok=True)
        (arguments.timelines / f"{workload.name}.json").write_text(text, encoding="utf-8")
    seconds = next(json.loads(line)["seconds"] for line in printed.splitlines() if line.startswith('{"seconds"'))
    work = gpu_work(json.loads(text))
    streams = sorted({one.stream for one in work})  # torch's default stream, of the compute thread, has number 7
    compute = [one for one in work if one.stream == streams[0]]
    mover = [one for one in work if one.stream != streams[0]]
    kinds = dict.fromkeys([*KINDS, *COPIES.values(), REST], 0.0) | by_kind(work)
    spans = {"GPU busy": busy_us(work), "at its compute": busy_us(compute), "at the mover's": busy_us(mover)}
    per_step = {name: us / steps / 1e3 for name, us in (spans | kinds).items()}
    return {"step": seconds / steps * 1e3, **per_step, "batch_size": config.train.batch_size, "steps": steps}
