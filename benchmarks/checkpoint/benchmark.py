"""What checkpoints cost: bytes, the time for which training stands still, and GB/s beside plain HDF5."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.manifest import DENSE_FILE, Arithmetic, CheckpointManifest
from bagpipe_hpc.storage.checkpoints.saved_rows import open_saved_rows
from bagpipe_hpc.storage.checkpoints.writer import CheckpointWriter
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.links import LINKS, run_ranks
from benchmarks.jobs.workload import WORKLOADS, Workload

_EMBEDDING_DIM, _STATE_COLUMNS = 48, 1
_STATE = (StateColumns("sum_of_mean_squares", per_weight=False),)
_SERVERS, _TRAINERS = 2, 2
_WAYS = {
    "none": ["train.checkpoint_every_steps=0"],
    "stands still": ["train.checkpoint_copy=false"],
    "copies": [],
    "increments": ["train.full_checkpoint_every=1000"],
}
"""Settings of the jobs; the first checkpoint of each holds all rows."""


@dataclass(frozen=True)
class JobCost:
    """What one job's checkpoints after the first took.

    Attributes:
        samples_per_s: of the whole training, checkpoints included.
        stood_still_s: medians for each checkpoint.
        complete_after_s: from its announcement.
        megabytes: of a checkpoint.
    """

    samples_per_s: float
    stood_still_s: float = 0.0
    complete_after_s: float = 0.0
    megabytes: float = 0.0


def run(arguments: argparse.Namespace) -> Report:
    """Measure the files alone, then whole jobs, each several times in turn."""
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    report = Report("checkpoint")
    _measure_files(report, (64 if arguments.quick else 1024) << 20, arguments.runs, folder)
    workload = WORKLOADS["quickstart" if arguments.quick else "embedding_bound"]
    _measure_jobs(report, workload, 10 if arguments.quick else 40, arguments.runs, folder)
    return report


def _measure_files(report: Report, size: int, runs: int, folder: Path) -> None:
    """Save and load the rows of one server, in turn with h5py alone on as many bytes of the same disk."""
    rows = size // (4 * (_EMBEDDING_DIM + _STATE_COLUMNS))
    records = np.ones((rows, _EMBEDDING_DIM + _STATE_COLUMNS), np.float32)
    speeds: dict[str, list[float]] = {name: [] for name in ("save", "plain write", "load", "plain read", "verify")}

    def note(name: str, seconds: float) -> None:
        speeds[name].append(records.nbytes / seconds / 1e9)

    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            partition = RoundRobinPartition(rows, 1)
            start = time.perf_counter()
            writer = CheckpointWriter(Path(scratch), 1)
            info = writer.write_rows(0, partition, records, _EMBEDDING_DIM)
            note("save", time.perf_counter() - start)
            (path,) = Path(scratch).rglob(info.file)
            start = time.perf_counter()
            with open_saved_rows([(path.parent, _manifest(rows, info))]) as saved:
                saved.read_server(partition, 0, records)
            note("load", time.perf_counter() - start)
            start = time.perf_counter()
            file_sha256(path)
            note("verify", time.perf_counter() - start)
            path.unlink()
            program: list[str | Path] = [sys.executable, Path(__file__).with_name("plain_hdf5.py"), path]
            sizes = [str(number) for number in (rows, _EMBEDDING_DIM, _STATE_COLUMNS)]
            plain = subprocess.run([*program, *sizes], check=True, capture_output=True, text=True)
            written_s, read_s = map(float, plain.stdout.split())
            note("plain write", written_s)
            note("plain read", read_s)
    figures = {name: median(values) for name, values in speeds.items()}
    report.figures["file_bytes"] = records.nbytes
    report.figures["gb_per_s"] = figures
    report.table(
        f"One server's rows, {records.nbytes / 1e6:.0f} MB, D = {_EMBEDDING_DIM}, GB/s",
        ["", "here", "plain HDF5", "share"],
        [
            _compared("save (written, forced to the disk, hashed)", figures["save"], figures["plain write"]),
            _compared("load", figures["load"], figures["plain read"]),
            ["verify (SHA-256)", f"{figures['verify']:.2f}", "", ""],
        ],
    )


def _compared(name: str, here: float, plain: float) -> list[str]:
    return [name, f"{here:.2f}", f"{plain:.2f}", f"{here / plain:.0%}"]


def _manifest(rows: int, info: FileInfo) -> CheckpointManifest:
    """Of a checkpoint with this row file; there is no dense half."""
    return CheckpointManifest(
        step=1,
        epoch=1,
        epoch_step=0,
        seed=1,
        batch_size=1,
        train_samples=1,
        training_data=info.sha256,
        evaluation_data=info.sha256,
        table_names=("C1",),
        table_rows=(rows,),
        embedding_dim=_EMBEDDING_DIM,
        row_optimizer="rowwise_adagrad",
        row_state_columns=_STATE_COLUMNS,
        row_state=_STATE,
        servers=1,
        placement="round_robin",
        base=None,
        files=(info, FileInfo(DENSE_FILE, 1, info.sha256)),
        arithmetic=Arithmetic(trainers=1, linear="torch", device="cpu", threads=1),
        config={},
    )


def _measure_jobs(report: Report, workload: Workload, every: int, runs: int, folder: Path) -> None:
    """Train with a checkpoint every few steps, in each way, and without."""
    steps = 6 * every
    shards = workload.shards(folder, steps, workload.config([]).train.batch_size)
    costs: dict[str, list[JobCost]] = {way: [] for way in _WAYS}
    for _ in range(runs):
        for way, settings in _WAYS.items():
            costs[way].append(_run_job(workload, shards, steps, every, settings, folder))
    rows = []
    report.figures |= {"workload": workload.name, "checkpoint_every_steps": every, "ways": {}}
    for way, measured in costs.items():
        cost = JobCost(*(median([getattr(job, name) for job in measured]) for name in JobCost.__match_args__))
        report.figures["ways"][way] = vars(cost)
        cells = [cost.stood_still_s * 1e3, cost.complete_after_s * 1e3, cost.megabytes]
        rows.append(
            [way, f"{cost.samples_per_s:,.0f}", *(f"{cell:,.0f}" if way != "none" else "" for cell in cells)],
        )
    report.table(
        f"Checkpoints every {every} steps ({workload.name}, S = {_SERVERS}, T = {_TRAINERS}), medians after the first",
        ["way", "samples/s", "stood still ms", "complete after ms", "MB"],
        rows,
    )


def _run_job(workload: Workload, shards: Path, steps: int, every: int, settings: list[str], folder: Path) -> JobCost:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        output = Path(scratch, "run")
        overrides = [
            f"data.path={shards}",
            "data.verify=quick",
            "lookahead.batches=10",
            "lookahead.group=0",
            f"roles.servers={_SERVERS}",
            f"train.max_steps={steps}",
            "train.epochs=1",
            "train.evaluate=false",
            "train.checkpoint_at_end=false",
            f"train.log_every_steps={every}",
            f"train.output={output}",
            *settings,
        ]
        if not any(setting.startswith("train.checkpoint_every_steps=") for setting in settings):
            overrides.append(f"train.checkpoint_every_steps={every}")
        command: list[str | Path] = [sys.executable, "-m", "bagpipe_hpc", "train", workload.config_file, *overrides]
        run_ranks([1 + _SERVERS + _TRAINERS], LINKS["native"], command, share=folder)
        events = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return cost_of(events, workload.config(overrides).train.batch_size)


def cost_of(events: list[dict[str, Any]], batch_size: int) -> JobCost:
    """From the end of the first interval to the end of the last; what follows the first checkpoint counts."""
    progress = [event for event in events if event["event"] == "progress"]
    steps = progress[-1]["step"] - progress[0]["step"]
    samples_per_s = steps * batch_size / (progress[-1]["time_s"] - progress[0]["time_s"])
    saved = [event for event in events if event["event"] == "checkpoint"][1:]
    if not saved:
        return JobCost(samples_per_s)
    return JobCost(
        samples_per_s,
        median([event["seconds"] for event in saved]),
        median([event["complete_after_s"] for event in saved]),
        median([event["bytes"] / 1e6 for event in saved]),
    )
