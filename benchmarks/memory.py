"""Peak resident memory of each role against its formula (docs/memory.md).

Two jobs on the same clicks, one with narrow rows and no look-ahead, one with wide rows and a window. What a process
has without any rows - Python, MPI, torch - is the same in both, so the difference of the peaks is what the formulas
explain.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.links import LINKS, run_ranks
from benchmarks.jobs.workload import WORKLOADS, Workload

_ROLES = ("oracle", "server", "trainer")
_LAYOUT = RoleLayout(servers=2, trainers=2)
_ROWS_OF_A_PLAN = (
    *("reduced_now", "reduced_later", "private", "rows_fetched", "rows_written_back"),
    *("copied", "sent_home", "relayed"),
)
_BATCHES_EXCHANGED = 2
"""Rows of two batches are between trainers with one home a row: of one that is computed, and behind it."""
_LOOK_UP_COPIES = 3
"""Of each look-up's weights a trainer holds the gathered ones, their gradients, and sums of these at the same time."""


def run(arguments: argparse.Namespace) -> Report:
    """Run both jobs, several times in turn, and compare the largest process of each role."""
    workload = WORKLOADS["quickstart" if arguments.quick else "embedding_bound"]
    steps, lookahead, width = (40, 20, 128) if arguments.quick else (120, 50, 128)
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    shards = workload.shards(folder, steps, workload.config([]).train.batch_size)
    settings = {"small": (1, 1), "large": (lookahead, width)}
    more = [f"cache.sharing={arguments.sharing}"]
    differences: dict[str, list[float]] = {role: [] for role in _ROLES}
    shared: dict[str, list[float]] = {role: [] for role in _ROLES}
    for _ in range(arguments.runs):
        jobs = {name: _run_job(workload, shards, steps, *sizes, folder, more) for name, sizes in settings.items()}
        for role in _ROLES:
            differences[role].append(_own_bytes(jobs["large"], role) - _own_bytes(jobs["small"], role))
            shared[role].append(max(rank["shared_bytes"] for rank in jobs["large"]["ranks"] if rank["role"] == role))
    explained = {role: jobs["large"]["formula"][role] - jobs["small"]["formula"][role] for role in _ROLES}
    base = {role: _own_bytes(jobs["small"], role) - jobs["small"]["formula"][role] for role in _ROLES}
    report = Report("memory")
    report.figures = {"workload": workload.name, "steps": steps, "lookahead_batches": lookahead, "embedding_dim": width}
    report.figures["sharing"] = arguments.sharing
    rows = []
    for role in _ROLES:
        measured = median(differences[role])
        report.figures[role] = {
            "base_bytes": round(base[role]),
            "formula_bytes": round(explained[role]),
            "measured_bytes": round(measured),
            "measured_to_formula": round(measured / explained[role], 3),
            "shared_bytes": round(median(shared[role])),
        }
        megabytes = (base[role], explained[role], measured, median(shared[role]))
        rows.append([role, *(f"{size / 1e6:.1f}" for size in megabytes), f"{measured / explained[role]:.2f}"])
    report.table(
        f"Peak memory of a process, MB ({workload.name}, L = {lookahead}, D = {width})",
        ["role", "without rows", "formula", "measured", "shared pages", "measured / formula"],
        rows,
    )
    return report


def _run_job(
    workload: Workload, shards: Path, steps: int, lookahead: int, embedding_dim: int, folder: Path, more: list[str]
) -> dict[str, Any]:
    """What each rank used, `ranks`, and what the formulas say for each role, `formula`, bytes."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        overrides = [
            f"data.path={shards}",
            "data.verify=quick",
            f"lookahead.batches={lookahead}",
            "lookahead.group=0",
            f"model.embedding_dim={embedding_dim}",
            f"roles.servers={_LAYOUT.servers}",
            f"train.max_steps={steps}",
            "train.evaluate=false",
            "train.checkpoint_at_end=false",
            f"train.output={scratch}/run",
            *more,
        ]
        command: list[str | Path] = [sys.executable, "-m", "bagpipe_hpc", "train", workload.config_file, *overrides]
        run_ranks([_LAYOUT.world_size], LINKS["native"], command, share=folder)
        used: dict[str, Any] = json.loads(Path(scratch, "run", "resources.json").read_text(encoding="utf-8"))
        summary = json.loads(Path(scratch, "run", "summary.json").read_text(encoding="utf-8"))
    used["formula"] = formula_bytes(workload.config(overrides), load_manifest(shards).table_rows, summary)
    return used


def formula_bytes(config: Config, table_rows: tuple[int, ...], summary: dict[str, Any]) -> dict[str, float]:
    """Bytes that rows and plans take in a process of each role, from the settings and a run's summary."""
    partition = RoundRobinPartition(sum(table_rows), _LAYOUT.servers)
    record_bytes = RowRecord.of(config).bytes
    look_ups = -(-config.train.batch_size // _LAYOUT.trainers) * len(table_rows)
    rows = {name: statistics.fmean(trainer[name] for trainer in summary["trainers"]) for name in _ROWS_OF_A_PLAN}
    moved = rows["rows_fetched"] + rows["rows_written_back"]
    reduced = rows["reduced_now"] + rows["reduced_later"]
    own = 4 * (look_ups + rows["private"]) + 12 * moved
    exchanged = 0.0
    if (
        config.cache.sharing == "home"
    ):  # slots of rows that are lent, summed, copied and sent; the place of each gradient
        shared = 0.0
        own += 4 * (3 * reduced + 2 * rows["copied"] + rows["sent_home"])
        exchanged = (
            4 * config.model.embedding_dim * (reduced + rows["sent_home"] + 2 * rows["copied"] + rows["relayed"])
        )
    else:
        shared = 4 * reduced
    plans = Window(summary["lookahead_batches"], summary["group_batches"]).plans_ahead
    return {
        "oracle": summary["planner_bytes"] + plans * (shared + _LAYOUT.trainers * own),
        "server": partition.rows_on(0) * record_bytes,
        "trainer": summary["cache_bytes"]
        + _LOOK_UP_COPIES * look_ups * config.model.embedding_dim * 4
        + plans * (shared + own)
        + summary["group_batches"] * moved * record_bytes
        + _BATCHES_EXCHANGED * exchanged,
    }


def _own_bytes(job: dict[str, Any], role: str) -> float:
    """Peak of the largest process of a role; a trainer's without the shared pages, most of them the servers'."""
    peaks = (
        rank["peak_bytes"] - (rank["shared_bytes"] if role == "trainer" else 0)
        for rank in job["ranks"]
        if rank["role"] == role
    )
    return float(max(peaks))
