"""`python -m benchmarks reading`: what a trainer and the oracle read of the shards, by the order of the samples.

A process reads an epoch as a trainer does, one slice of each batch, for several numbers of trainers. Counted is what it
takes from the files, chunk by chunk, beside the slice's share of all that trainers read there. Orders take turns.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bagpipe_hpc.config.schema import Config, DataConfig, TrainConfig
from bagpipe_hpc.plan.schedule import build_schedule
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.slice_reader import SliceReader
from bagpipe_hpc.storage.shards.entries import FeatureInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.raw_chunks import RawDataset
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, Samples
from bagpipe_hpc.storage.shards.writer import write_shard
from bagpipe_hpc.tools.report import Report, median

_FEATURES, _DENSE = 26, 13
_TABLE_ROWS = 1_000_000
_READ_BY_TRAINERS = ("dense", "label")


@dataclass(frozen=True)
class ReadingOrder:
    """An order to measure.

    Attributes:
        name: in the table.
        block_rows: `data.block_rows`.
        lanes: `data.lanes`.
    """

    name: str
    block_rows: int
    lanes: int


@dataclass
class Read:
    """What was taken from files.

    Attributes:
        bytes: in all.
        of: the same by dataset.
    """

    of: dict[str, int]

    @property
    def bytes(self) -> int:
        """Of all datasets."""
        return sum(self.of.values())


@contextmanager
def counted() -> Iterator[Read]:
    """Count the bytes of chunks that are taken from files meanwhile."""
    taken, take = Read({}), RawDataset._chunk

    def count(dataset: RawDataset, number: int) -> Any:
        taken.of[dataset.name] = taken.of.get(dataset.name, 0) + int(dataset.sizes[number])
        return take(dataset, number)

    RawDataset._chunk = count  # type: ignore[assignment,method-assign]
    try:
        yield taken
    finally:
        RawDataset._chunk = take  # type: ignore[method-assign]


def generated_shards(folder: Path, shards: int, rows: int) -> ShardManifest:
    """One-hot clicks with skewed ids: one shard, and links to it in the place of the others."""
    rng = np.random.default_rng(1)

    def blocks() -> Iterator[Samples]:
        for first in range(0, rows, CHUNK_ROWS):
            n = min(CHUNK_ROWS, rows - first)
            ids = np.minimum(rng.zipf(1.2, (n, _FEATURES)), _TABLE_ROWS).astype(np.int32) - 1
            counts = rng.geometric(0.1, (n, _DENSE))
            yield Samples(np.log1p(counts).astype(np.float32), ids, (rng.random(n) < 0.25).astype(np.uint8))

    info = write_shard(folder / "train-00000.h5", rows, blocks())
    infos = [replace(info, file=f"train-{number:05}.h5") for number in range(shards)]
    for other in infos[1:]:
        os.link(folder / info.file, folder / other.file)
    tables = tuple(TableInfo(f"C{number}", _TABLE_ROWS) for number in range(1, _FEATURES + 1))
    features = tuple(FeatureInfo(table.name, table.name) for table in tables)
    return ShardManifest(1, "generated", _DENSE, tables, tuple(infos), (), features=features)


def run_of(folder: Path, manifest: ShardManifest, order: ReadingOrder, batch_size: int) -> Run:
    """An epoch in an order."""
    data = DataConfig(path=str(folder), block_rows=order.block_rows, lanes=order.lanes)
    train = TrainConfig(batch_size=batch_size, evaluate=False)
    schedule = build_schedule(train, manifest.rows("train"), 0)
    return Run(Config(data=data, train=train), manifest, tuple(schedule))


def read_as_trainer(run: Run, trainer: int, trainers: int) -> tuple[Read, list[float]]:
    """Bytes of an epoch's slices, and the milliseconds of each batch."""
    (segment,) = run.schedule
    times = []
    with counted() as read, SliceReader(run, trainer, trainers) as reader:
        reader.start_segment(segment)
        for batch in range(segment.batches):
            before = time.perf_counter()
            reader.read(batch)
            times.append(1e3 * (time.perf_counter() - before))
    return read, times


def read_as_oracle(run: Run) -> list[float]:
    """Milliseconds of each batch, in one thread."""
    (segment,) = run.schedule
    times, before = [], time.perf_counter()
    for _ in run.batches(segment):
        times.append(1e3 * (time.perf_counter() - before))
        before = time.perf_counter()
    return times


def run(arguments: argparse.Namespace) -> Report:
    """Read in each order, as trainers of each number and as the oracle."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        if arguments.shards:
            folder, manifest = arguments.shards, load_manifest(arguments.shards)
        else:
            folder = Path(scratch)
            manifest = generated_shards(folder, 1 if arguments.quick else 4, 1 << (17 if arguments.quick else 20))
        batch = min(arguments.batch_size, manifest.rows("train"))
        orders = [
            ReadingOrder("blocks of a batch", batch, 1),
            ReadingOrder("blocks of a chunk", CHUNK_ROWS, 1),
            ReadingOrder(f"{arguments.lanes} lanes", CHUNK_ROWS, arguments.lanes),
        ]
        runs = [run_of(folder, manifest, order, batch) for order in orders]
        return _report(orders, runs, arguments.trainers, arguments.runs)


def _report(orders: Sequence[ReadingOrder], runs: Sequence[Run], trainers: Sequence[int], repeats: int) -> Report:
    epoch_bytes = _epoch_bytes(runs[0])
    report = Report("reading")
    samples, batch = runs[0].manifest.rows("train"), runs[0].config.train.batch_size
    report.figures = {"samples": samples, "batch_size": batch, "epoch_bytes": epoch_bytes, "orders": []}
    rows = []
    figures: list[dict[str, Any]] = [
        {"name": order.name, "block_rows": order.block_rows, "lanes": run.sample_orders.lanes, "trainers": []}
        for order, run in zip(orders, runs, strict=True)
    ]
    for count in trainers:
        times: list[list[float]] = [[] for _ in runs]
        longest: list[list[float]] = [[] for _ in runs]
        reads = [0.0] * len(runs)
        for _ in range(repeats):
            for number, one in enumerate(runs):
                read, taken = read_as_trainer(one, count // 2, count)
                reads[number] = read.bytes / (epoch_bytes / count)
                times[number].append(statistics.fmean(taken))
                longest[number].append(max(taken[1:], default=taken[0]))
        for number, order in enumerate(orders):
            own = {
                "trainers": count,
                "read_to_share": round(reads[number], 3),
                "batch_kb": round(reads[number] * epoch_bytes / count / len(taken) / 1e3, 1),
                "batch_ms": median(times[number]),
                "longest_ms": median(longest[number]),
            }
            figures[number]["trainers"].append(own)
            rows.append([order.name, *(f"{own[name]}" for name in own)])
    report.table(
        f"A trainer in the middle: {samples} samples, batches of {batch}",
        ["order", "trainers", "read / share", "kB a batch", "ms a batch", "ms, longest"],
        sorted(rows, key=lambda row: [order.name for order in orders].index(row[0])),
    )
    oracle = []
    repeated: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for number, one in enumerate(runs):
            repeated[number].append(statistics.fmean(read_as_oracle(one)))
    for order, own_times, own_figures in zip(orders, repeated, figures, strict=True):
        own_figures["oracle_batch_ms"] = median(own_times)
        oracle.append([order.name, f"{own_figures['oracle_batch_ms']:.1f}"])
    report.table("The oracle, one thread", ["order", "ms a batch"], oracle)
    report.figures["orders"] = figures
    return report


def _epoch_bytes(run: Run) -> int:
    """All that trainers read in an epoch, once."""
    whole = replace(
        run, config=replace(run.config, data=replace(run.config.data, shuffle=False, block_rows=CHUNK_ROWS))
    )
    read, _ = read_as_trainer(whole, 0, 1)
    return sum(read.of.get(name, 0) for name in _READ_BY_TRAINERS)
