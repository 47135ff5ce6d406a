"""The same training in plain PyTorch, in TorchRec and here: samples/s, memory and quality side by side.

Contenders run in turn, every other round the other way round, so that a change of the machine's load meets all alike;
with `--turns` they change every few seconds (`turns.py`).
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psutil
import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.links import LINKS, refusal
from benchmarks.jobs.other_load import wait_for_quiet
from benchmarks.peers.contenders import (
    CONTENDERS,
    PEERS_PYTHON,
    Contender,
    PeerResult,
    measure_quality,
    measure_speed,
)
from benchmarks.peers.turns import Turns, add_turns, measure_turns
from benchmarks.peers.workloads import PeerWorkload, large_tables_workload, link_workload, real_workload

BASELINES = ("pytorch", "torchrec-2x1")
"""Contenders that the others are compared with."""
_QUICK = ("pytorch", "torchrec-2x1", "bagpipe-1x2")
_QUALITY = {
    "SGD, 3 epochs": ["train.epochs=3"],
    "row-wise Adagrad, 1 epoch": [
        "optimizer.rows=rowwise_adagrad",
        "optimizer.rows_lr=0.005",
        "optimizer.dense=Adagrad",
        "optimizer.dense_lr=0.005",
    ],
}
_EPOCHS, _EPOCHS_ON_GPU = 4, 12
_LARGE_STEPS, _LARGE_STEPS_ON_GPU = 40, 240
"""Passes over `real` and steps of `large` that count: a step is short on a GPU."""
_ATTEMPTS = 3
"""Runs of a contender before one counts in which others took more than was allowed."""
_QUALITY_OF = ("pytorch", "torchrec-2x1", "bagpipe-1x2", "bagpipe-2x1")


def run(arguments: argparse.Namespace) -> Report:
    """Measure the workloads that `arguments.workloads` names.

    Raises:
        ConfigError: there is no such contender, or torch sees no GPU and one was asked for.
    """
    on_gpu = arguments.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no GPU here; leave it out")
    report = Report("peers")
    contenders = _chosen(arguments.contenders or (_QUICK if arguments.quick else [c.name for c in CONTENDERS]))
    if not PEERS_PYTHON.exists():
        contenders = _without_peers(contenders, report)
    epochs = _EPOCHS_ON_GPU if on_gpu else _EPOCHS
    makers: dict[str, Callable[[], PeerWorkload]] = {
        "real": lambda: real_workload(arguments.criteo, *((20_000, 2) if arguments.quick else (100_000, epochs))),
        "large": lambda: large_tables_workload(_LARGE_STEPS_ON_GPU if on_gpu else _LARGE_STEPS),
        "link": lambda: link_workload(LINKS[arguments.link]),
    }
    turns = Turns(arguments.turns, arguments.turn_s) if arguments.turns else None
    for name in ["real"] if arguments.quick else arguments.workloads:
        workload = makers[name]()
        if obstacle := _obstacle(workload, on_gpu=on_gpu):
            _say(report, f"not run: {name}: {obstacle}")
            continue
        if on_gpu:
            workload = replace(workload, device="cuda")
        taking_part = _taking_part(contenders, name, workload, report)
        if turns:
            if obstacle := _obstacle_to_turns(workload, len(taking_part)):
                _say(report, f"not run: {name}: {obstacle}")
                continue
            steps_s = measure_turns(taking_part, workload, turns)
            title = f"{workload.title}; in turns of {turns.seconds} s"
            batch_samples = workload.config([]).train.batch_size
            report.figures[name] = add_turns(report, title, taking_part, steps_s, batch_samples)
            continue
        runs = _in_turn(taking_part, workload, arguments)
        report.figures[name] = add_speeds(report, workload.title, {c.name: c.title for c in taking_part}, runs)
        if name == "real" and not arguments.quick and not on_gpu:
            report.figures["quality"] = _add_quality(report, workload, contenders)
    return report


def _obstacle(workload: PeerWorkload, *, on_gpu: bool = False) -> str | None:
    """Why this machine cannot run a workload now."""
    if on_gpu and workload.link.is_emulated:
        return "hosts that are emulated have no GPU each; leave --device out"
    if psutil.virtual_memory().available < workload.needed_bytes:
        return f"it needs {workload.needed_bytes / 1e9:.0f} GB of free memory"
    return refusal(workload.link)


def _obstacle_to_turns(workload: PeerWorkload, contenders: int) -> str | None:
    """Why contenders cannot train a workload at the same time here."""
    if workload.link.is_emulated:
        return "hosts that are emulated are not stopped; leave --turns out"
    if psutil.virtual_memory().available < (needed := contenders * workload.needed_bytes):
        return f"{contenders} contenders at the same time need {needed / 1e9:.0f} GB of free memory"
    return None


def _chosen(names: Sequence[str]) -> list[Contender]:
    """The contenders of these names.

    Raises:
        ConfigError: there is none of a name.
    """
    known = {contender.name: contender for contender in CONTENDERS}
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"--contenders {unknown[0]}: there is no such contender; use some of {', '.join(known)}")
    return [known[name] for name in names]


def _without_peers(contenders: list[Contender], report: Report) -> list[Contender]:
    missing = [contender.title for contender in contenders if contender.is_peer]
    if missing:
        venv = PEERS_PYTHON.parents[1]
        _say(report, f"not run: {'; '.join(missing)}: there is no {venv}; make it with benchmarks/peers/setup.sh")
    return [contender for contender in contenders if not contender.is_peer]


def _taking_part(contenders: list[Contender], name: str, workload: PeerWorkload, report: Report) -> list[Contender]:
    """Those that can train a workload; the report says who cannot, and why."""
    over_link, on_gpu = workload.link.is_emulated, workload.device == "cuda"
    obstacles = {contender: contender.obstacle(over_link=over_link, on_gpu=on_gpu) for contender in contenders}
    for obstacle in dict.fromkeys(filter(None, obstacles.values())):
        titles = [contender.title for contender, own in obstacles.items() if own == obstacle]
        _say(report, f"not run: {name}: {'; '.join(titles)}: {obstacle}")
    return [contender for contender, obstacle in obstacles.items() if not obstacle]


def _say(report: Report, line: str) -> None:
    """Say what is left out, at once, in the report and in its figures."""
    print(f"peers: {line}", file=sys.stderr, flush=True)
    report.lines.append(line)
    report.figures.setdefault("not_run", []).append(line.removeprefix("not run: "))


def _in_turn(
    contenders: Sequence[Contender], workload: PeerWorkload, arguments: argparse.Namespace
) -> dict[str, list[PeerResult]]:
    """The timed runs of each contender."""
    runs: dict[str, list[PeerResult]] = {contender.name: [] for contender in contenders}
    for number in range(arguments.runs):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            for _ in range(_ATTEMPTS):
                result = _quiet_run(contender, workload, arguments.quiet_s)
                if result.watched.others_share <= arguments.others_at_most:
                    break
            runs[contender.name].append(result)
    return runs


def _quiet_run(contender: Contender, workload: PeerWorkload, quiet_s: float | None) -> PeerResult:
    """One timed run, after waiting up to `quiet_s` for idle cores."""
    if quiet_s and not wait_for_quiet(quiet_s):
        print("peers: others keep the cores busy; measuring all the same", file=sys.stderr)
    result = measure_speed(contender, workload)
    print(
        f"{contender.title}: {result.samples_per_s:,.0f} samples/s, "
        f"others took {result.watched.others_share:.0%} of the cores"
        + (f"; linear layers: {result.linear}" if result.linear else ""),
        file=sys.stderr,
        flush=True,
    )
    return result


def add_speeds(
    report: Report, title: str, titles: Mapping[str, str], runs: Mapping[str, Sequence[PeerResult]]
) -> dict[str, Any]:
    """Add the table of a workload's timed runs.

    Args:
        report: gets the table.
        title: of the table.
        titles: what each contender is called, by name.
        runs: of each contender, by name, one or more.

    Returns:
        The figures of each contender, by name.
    """
    speeds = {name: statistics.median(run.samples_per_s for run in results) for name, results in runs.items()}
    baselines = [name for name in BASELINES if name in speeds]
    rows, figures = [], {}
    for name, results in runs.items():
        samples_per_s = [run.samples_per_s for run in results]
        largest_gb = max(run.watched.largest_rss_bytes for run in results) / 1e9
        memory_gb = max(run.watched.memory_bytes for run in results) / 1e9
        others_share = max(run.watched.others_share for run in results)
        ratios = {baseline: speeds[name] / speeds[baseline] for baseline in baselines}
        rows.append(
            [
                titles[name],
                f"{speeds[name]:,.0f}",
                f"{min(samples_per_s):,.0f} - {max(samples_per_s):,.0f}",
                *(f"{ratio:.2f}" for ratio in ratios.values()),
                f"{largest_gb:.2f}",
                f"{memory_gb:.2f}",
                f"{others_share:.0%}",
            ]
        )
        figures[name] = {
            "samples_per_s": median(samples_per_s),
            "samples_per_s_of_runs": [round(value) for value in samples_per_s],
            **{f"ratio_to_{baseline}": round(ratio, 3) for baseline, ratio in ratios.items()},
            "largest_rss_gb": round(largest_gb, 3),
            "memory_gb": round(memory_gb, 3),
            "largest_others_share": round(others_share, 2),
        }
        if linear := [run.linear for run in results if run.linear]:
            figures[name]["linear_layers"] = linear
    headings = ["", "samples/s", "lowest - highest", *(f"to {titles[name]}" for name in baselines)]
    report.table(title, [*headings, "largest process GB", "all GB", "others"], rows)
    return figures


def _add_quality(report: Report, workload: PeerWorkload, contenders: Sequence[Contender]) -> dict[str, Any]:
    """Train with each optimizer once, and add the table of AUC and log loss on the test rows."""
    figures: dict[str, Any] = {}
    rows = []
    for contender in contenders:
        if contender.name not in _QUALITY_OF:
            continue
        figures[contender.name] = {}
        cells = [contender.title]
        for optimizer, settings in _QUALITY.items():
            result = measure_quality(contender, workload, settings)
            figures[contender.name][optimizer] = {"auc": round(result.auc, 5), "log_loss": round(result.log_loss, 5)}
            cells += [f"{result.auc:.5f}", f"{result.log_loss:.5f}"]
        rows.append(cells)
    headings = ["", *(f"{optimizer}: {measure}" for optimizer in _QUALITY for measure in ("AUC", "log loss"))]
    report.table("quality on the test rows (plain PyTorch: Adagrad for rows, too)", headings, rows)
    return figures
