"""Training with a part of the rows in memory and the rest on SSD, beside all in memory; and what the disk does."""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bagpipe_hpc.config.schema import LookaheadConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.block_file import NativeBlockFile
from bagpipe_hpc.rows.disk.block_file import NO_BLOCK, SECTOR_BYTES, frame_memory, open_unnamed, reserve
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.links import LINKS, run_ranks
from benchmarks.jobs.other_load import OtherLoad
from benchmarks.jobs.own_settings import require_free
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.workload import WORKLOADS

_FOLDER = REPOSITORY / "build" / "bench"
_IDS_AT_MOST, _QUICK_IDS = 20_000_000, 1_000_000
_SHARD_STEPS, _QUICK_SHARD_STEPS = 1000, 200
"""Samples that the tables are counted from; far fewer are trained on."""
_LOOKAHEAD = LookaheadConfig(batches=40, group=10)
_WARM_STEPS = 60
"""Until the window is full and rows come back."""
_RECORD_STEPS = 10
_SHARES = (25, 50, 100)
_NEARLY_ALL = 0.999
_PROBED_BYTES = 1 << 30
_PROBE_S = 3.0
_PROBE_MOVES = 4096
_ROW_OPTIMIZER = "rowwise_adagrad"


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        percent: of the rows that a server may hold in memory; 0 for all, without a file.
        reads_ahead: what plans announce.
    """

    percent: int
    reads_ahead: bool = True

    def __str__(self) -> str:
        if not self.percent:
            return "all in memory"
        return f"{self.percent} %, {'read ahead' if self.reads_ahead else 'not read ahead'}"


def run(arguments: argparse.Namespace) -> Report:
    """Measure the disk, then jobs in turn; see `command` for the arguments.

    Raises:
        ConfigError: the shards have too few steps, or a setting is wrong, or the benchmark's own.
        RanksFailedError: a job ended with an error.
    """
    report = Report("ssd")
    measured = arguments.steps or (20 if arguments.quick else 100)
    steps = StepRange.steady(_LOOKAHEAD, measured, at_least=_WARM_STEPS, every=_RECORD_STEPS)
    require_free(arguments.set, _own_settings(Case(0), Path(), 0, Path(), Path(), steps, arguments.width))
    shard_steps = arguments.shard_steps or (_QUICK_SHARD_STEPS if arguments.quick else _SHARD_STEPS)
    if shard_steps < steps.total:
        raise ConfigError(f"--shard-steps {shard_steps}: a run takes {steps.total} steps; use as many or more")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    path = arguments.path or _FOLDER
    workload = replace(WORKLOADS["embedding_bound"], ids_at_most=_QUICK_IDS if arguments.quick else _IDS_AT_MOST)
    folder = _FOLDER / ("ssd-quick" if arguments.quick else "ssd")
    folder.mkdir(exist_ok=True)
    batch_size = workload.config(arguments.set).train.batch_size
    shards = workload.shards(folder, shard_steps, batch_size)
    record = replace(RowRecord.of(workload.config([f"optimizer.rows={_ROW_OPTIMIZER}"])), embedding_dim=arguments.width)
    rows = sum(load_manifest(shards).table_rows)
    tables_bytes = rows * record.bytes
    _probe(report, path)
    cases = [Case(0)]
    for percent in arguments.shares or _SHARES:
        cases += [Case(percent), *([Case(percent, reads_ahead=False)] if arguments.plain else [])]
    results: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
    for number in range(arguments.runs):
        for case in cases if number % 2 == 0 else reversed(cases):
            found = _run_case(case, workload.config_file, shards, tables_bytes, path, steps, arguments)
            results[case].append(found)
            print(f"run {number + 1}, {case}: {found['samples_per_s']:,.0f} samples/s", file=sys.stderr, flush=True)
    report.figures |= {"rows": rows, "tables_bytes": tables_bytes, "width": arguments.width, "runs": arguments.runs}
    report.figures |= {"measured_steps": steps.last - steps.first, "batch_size": batch_size, "set": arguments.set}
    report.figures["shard_steps"] = shard_steps
    report.figures["jobs"] = jobs = [{"case": str(case)} | _medians(found) for case, found in results.items()]
    losses = {loss for found in results.values() for result in found for loss in result["losses"]}
    report.figures["same_losses"] = len(losses) == 1
    base = jobs[0]["samples_per_s"]
    report.table(
        f"{rows / 1e6:.2f} million rows of {record.bytes} bytes, {tables_bytes / 1e9:.2f} GB; batches of {batch_size}",
        [
            "rows in memory",
            "samples/s",
            "of all",
            "waits for rows",
            "reads a step",
            "MB read",
            "ahead",
            "writes a step",
            "server MB",
        ],
        [
            [
                job["case"],
                f"{job['samples_per_s']:,.0f}",
                f"{job['samples_per_s'] / base:.0%}",
                f"{job['wait_rows_share']:.0%}",
                f"{job['reads_a_step']:,.0f}",
                f"{job['bytes_read_a_step'] / 1e6:.2f}",
                f"{job['ahead_share']:.0%}",
                f"{job['writes_a_step']:,.0f}",
                f"{job['server_peak_bytes'] / 1e6:,.0f}",
            ]
            for job in jobs
        ],
    )
    report.lines.append(f"losses of all jobs are {'the same bits' if len(losses) == 1 else 'NOT THE SAME'}")
    return report


def _probe(report: Report, path: Path) -> None:
    """Random reads and writes of the disk, with as many under way as servers have."""
    rows = []
    for block_bytes in (SECTOR_BYTES, 4096):
        blocks = _PROBED_BYTES // block_bytes
        descriptor = open_unnamed(str(path))
        reserve(descriptor, str(path), _PROBED_BYTES)
        memory = frame_memory(_PROBE_MOVES, block_bytes)
        file = NativeBlockFile(descriptor, memory, block_bytes, str(path))
        frames = np.arange(_PROBE_MOVES, dtype=np.int64)
        none = np.full(_PROBE_MOVES, NO_BLOCK)
        for first in range(0, blocks, _PROBE_MOVES):  # a disk is fast with what was never written
            _finish(file, file.submit(frames, first + frames, first + frames))
        rng = np.random.default_rng(1)
        rates = []
        for kind in ("read", "write"):
            moved, start = 0, time.perf_counter()
            while time.perf_counter() < start + _PROBE_S:
                chosen = rng.choice(blocks, _PROBE_MOVES, replace=False) if blocks < 1 << 16 else None
                chosen = np.unique(rng.integers(0, blocks, _PROBE_MOVES)) if chosen is None else chosen
                rng.shuffle(chosen)
                count = chosen.size
                job = (
                    file.submit(frames[:count], none[:count], chosen)
                    if kind == "read"
                    else file.submit(frames[:count], chosen, chosen)
                )
                _finish(file, job)
                moved += count
            rates.append(moved / (time.perf_counter() - start))
        file.close()
        report.figures[f"disk_{block_bytes}"] = {"reads_per_s": round(rates[0]), "writes_per_s": round(rates[1])}
        rows.append([f"{block_bytes}", f"{rates[0]:,.0f}", f"{rates[1]:,.0f}"])
    report.table("The disk, 32 at a time, at random places", ["bytes", "reads/s", "writes/s"], rows)


def _finish(file: NativeBlockFile, job: int) -> None:
    while file.done() < job:
        time.sleep(50e-6)


def _own_settings(
    case: Case, shards: Path, memory_gb: float, path: Path, output: Path, steps: StepRange, width: int
) -> list[str]:
    """What a job sets itself, each `section.field=value`."""
    return [
        *(f"data.path={shards}", "data.verify=quick", "roles.servers=1", "roles.placement=rank_order"),
        *(f"model.embedding_dim={width}", f"optimizer.rows={_ROW_OPTIMIZER}"),
        *(f"lookahead.batches={_LOOKAHEAD.batches}", f"lookahead.group={_LOOKAHEAD.group}"),
        *(f"train.max_steps={steps.total}", "train.epochs=1", "train.evaluate=false"),
        *("train.checkpoint_at_end=false", f"train.log_every_steps={_RECORD_STEPS}", f"train.output={output}"),
        *(f"tables.memory_gb={memory_gb!r}", f"tables.ssd_path={os.fspath(path)}"),
        f"tables.read_ahead={str(case.reads_ahead).lower()}",
    ]


def _run_case(
    case: Case,
    config: Path,
    shards: Path,
    tables_bytes: int,
    path: Path,
    steps: StepRange,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Train from the start; what came out."""
    memory_gb = 0.0 if not case.percent else min(case.percent / 100, _NEARLY_ALL) * tables_bytes / 1e9
    with tempfile.TemporaryDirectory(dir=_FOLDER) as scratch:
        output = Path(scratch, "run")
        own = _own_settings(case, shards, memory_gb, path, output, steps, arguments.width)
        settings = [*own, *arguments.set]
        command: list[str | Path] = [sys.executable, "-m", "bagpipe_hpc", "train", config, *settings]
        with OtherLoad() as others:
            run_ranks([3], LINKS["native"], command, share=_FOLDER)
        events = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        ranks = json.loads((output / "resources.json").read_text(encoding="utf-8"))["ranks"]
        log = (output / "logs" / "server-0.log").read_text(encoding="utf-8")
    records = [event for event in events if event["event"] == "progress"]
    counted = [record for record in records if steps.counts(record["step"])]
    means = [record["of_trainers"]["mean"] for record in counted]
    mean = {key: float(np.mean([of_one[key] for of_one in means])) for key in ("total_ms", "wait_rows_ms")}
    batch_size = counted[0]["samples_per_s"] * means[0]["total_ms"] / 1e3
    read, block_bytes, ahead, written = _disk_work(log)
    (server,) = [rank for rank in ranks if rank["role"] == "server"]
    return {
        "samples_per_s": batch_size / mean["total_ms"] * 1e3,
        "wait_rows_share": mean["wait_rows_ms"] / mean["total_ms"],
        # of all steps: the log has sums of the whole run
        "reads_a_step": read / steps.total,
        "bytes_read_a_step": read * block_bytes / steps.total,
        "writes_a_step": written / steps.total,
        "ahead_share": ahead / max(1, read),
        "server_peak_bytes": server["peak_bytes"],
        "server_processor_s": server["processor_s"],
        "memory_bytes": memory_gb * 1e9,
        "others_share": others.share,
        "losses": [records[-1]["loss"]],
    }


def _disk_work(log: str) -> tuple[int, int, int, int]:
    """What a server's log says of its disk; zeros where all rows were in memory.

    Returns:
        Blocks that were read, bytes of a block, blocks that were read ahead, and blocks that were written.
    """
    for line in log.splitlines():
        if "bytes were read," in line:
            words = line.replace(",", "").split()
            read, size = int(words[words.index("blocks") - 1]), int(words[words.index("bytes") - 1])
            ahead = int(words[words.index("ahead") - 3])
            return read, size, ahead, int(words[words.index("written") - 1])
    return 0, 0, 0, 0


def _medians(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of a case's runs, and the samples/s of each."""
    keys = [key for key in found[0] if key != "losses"]
    figures: dict[str, Any] = {key: median([result[key] for result in found]) for key in keys}
    return figures | {"samples_per_s_of_runs": [round(result["samples_per_s"]) for result in found]}
