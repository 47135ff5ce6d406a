"""`python -m benchmarks oracle`: samples per second that the oracle reads and plans, and how soon it starts.

Shards are written with ids by popularity over Criteo Kaggle's tables, scaled. Then the oracle's own code reads them,
plans batches that are in memory, and does both at once, in the middle of a long segment, a number of threads after the
other. The time until training could begin is that of the choice of a window for a long run over these shards.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.config.schema import CacheConfig, Config, DataConfig, KernelsConfig, LookaheadConfig, TrainConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.rows.partition import table_offsets
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.simulation.synthetic_rows import draw_batches
from bagpipe_hpc.storage.shards.encoded import EncodedSamples, encode_samples, write_encoded_shard
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import SCHEMA_VERSION, ShardManifest, save_manifest
from bagpipe_hpc.storage.shards.samples import Samples
from bagpipe_hpc.tools.report import Report, median
from benchmarks.planner.benchmark import ZIPF, scaled_tables
from data_prep.backend import lzf_encoder

_BLOCK = 1 << 16
_SHARD_BLOCKS = 16
_TRAINERS = 2
_QUICK_LOOKAHEAD = 10
_BEYOND_WINDOW = 4
"""Batches that there are more than the window has: they come round again when their rows have left it."""
PARTS = ("read", "plan", "both")


@dataclass
class Times:
    """Seconds a sample of each run.

    Attributes:
        elapsed: of elapsed time.
        processor: of all threads' processor time.
    """

    elapsed: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def run(self, samples: int, work: Callable[[], None]) -> None:
        """Time one run."""
        start, processor_start = time.perf_counter(), time.process_time()
        work()
        self.elapsed.append((time.perf_counter() - start) / samples)
        self.processor.append((time.process_time() - processor_start) / samples)


def run(arguments: argparse.Namespace) -> Report:
    """Measure; see `command` for the arguments.

    Raises:
        ConfigError: the shards have too few batches for the window.
    """
    keep_all_freed_memory()  # as the oracle does
    if arguments.quick:
        arguments.rows = min(arguments.rows, 10_000_000)
        arguments.lookahead = min(arguments.lookahead, _QUICK_LOOKAHEAD)
        arguments.batch_size, arguments.samples = min(arguments.batch_size, 16384), min(arguments.samples, 1 << 18)
        arguments.run_samples = min(arguments.run_samples, 1 << 22)
    _require_batches(arguments)
    report = Report("oracle")
    names = ("rows", "batch_size", "lookahead", "samples", "run_samples")
    report.figures |= {"zipf": ZIPF, "runs": arguments.runs, **{name: getattr(arguments, name) for name in names}}
    with tempfile.TemporaryDirectory(prefix="bagpipe-oracle-") as folder:
        write_shards(Path(folder), scaled_tables(arguments.rows), arguments.samples)
        found = {threads: measure(Path(folder), arguments, threads) for threads in arguments.threads}
        starts = {measure: time_to_start(Path(folder), arguments, measure) for measure in ("beginning", "all")}
    report.figures["threads"] = {
        str(threads): {
            f"{part}_{name}": median([1 / value for value in getattr(times[part], attribute)])
            for part in PARTS
            for name, attribute in (("samples_per_s", "elapsed"), ("samples_per_processor_s", "processor"))
        }
        for threads, times in found.items()
    }
    report.figures["start_s"] = starts
    report.table(
        f"samples/s, {arguments.rows:,} rows, batch {arguments.batch_size:,}, L = {arguments.lookahead}, "
        f"{_TRAINERS} trainers",
        ("threads", *(f"{part}{of}" for part in PARTS for of in ("", ", a processor second"))),
        [
            [threads, *(f"{figure:,.0f}" for figure in figures.values())]
            for threads, figures in report.figures["threads"].items()
        ],
    )
    report.table(
        f"seconds until training could begin, {arguments.run_samples:,} samples",
        ("cache.measure", "s"),
        [[name, f"{seconds:.1f}"] for name, seconds in starts.items()],
    )
    return report


def _require_batches(arguments: argparse.Namespace) -> None:
    """See that batches come round again behind the window only, else no row would leave it and none be fetched.

    Raises:
        ConfigError: there are too few.
    """
    batches = min(arguments.samples, arguments.run_samples) // arguments.batch_size
    if batches < (needed := arguments.lookahead + _BEYOND_WINDOW):
        raise ConfigError(
            f"--lookahead {arguments.lookahead}: takes {needed} batches, and --samples {arguments.samples} and "
            f"--run-samples {arguments.run_samples} are {batches} of {arguments.batch_size}; use more samples, "
            "a smaller --batch-size or a smaller --lookahead"
        )


def write_shards(folder: Path, table_rows: tuple[int, ...], samples: int) -> None:
    """Write training samples as compressed shards, and their manifest; dense features and labels are zeros."""
    encode, first_rows = lzf_encoder(), table_offsets(table_rows)[:-1]

    def blocks(shard: int, rows: int) -> Iterator[EncodedSamples]:
        for first in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - first)
            (drawn,) = draw_batches(table_rows, 1, count, ZIPF, seed=shard * _SHARD_BLOCKS + first // _BLOCK)
            dense, labels = np.zeros((count, 1), dtype=np.float32), np.zeros(count, dtype=np.uint8)
            yield encode_samples(Samples(dense, (drawn - first_rows).astype(np.int32), labels), rows, encode)

    shards = []
    for number, first in enumerate(range(0, samples, _BLOCK * _SHARD_BLOCKS)):
        rows = min(_BLOCK * _SHARD_BLOCKS, samples - first)
        path = folder / f"train-{number:05}.h5"
        shards.append(write_encoded_shard(path, rows, blocks(number, rows), "lzf", encode))
    tables = tuple(TableInfo(f"C{number}", rows) for number, rows in enumerate(table_rows, start=1))
    save_manifest(folder, ShardManifest(SCHEMA_VERSION, "kaggle-sizes", 1, tables, tuple(shards), ()))


def configured(folder: Path, arguments: argparse.Namespace, **sections: Any) -> Run:
    """A run over the shards, of the samples that are asked for."""
    steps = arguments.run_samples // arguments.batch_size
    train = TrainConfig(
        batch_size=arguments.batch_size,
        epochs=-(-arguments.run_samples // arguments.samples),
        max_steps=steps,
        evaluate=False,
    )
    settings: dict[str, Any] = {"data": DataConfig(path=str(folder), verify="quick"), **sections}
    return prepare_run(Config(train=train, lookahead=LookaheadConfig(arguments.lookahead), **settings))


def measure(folder: Path, arguments: argparse.Namespace, threads: int) -> dict[str, Times]:
    """Read, plan, and do both at once, with so many threads for each."""
    whole = configured(folder, arguments, kernels=KernelsConfig(planner_threads=threads))
    (segment, *_) = whole.schedule
    policy = whole.policy(_TRAINERS)
    window = policy.window(whole.window)
    steps = segment.batches
    in_memory = list(itertools.islice(whole.batches(segment, threads), arguments.lookahead + _BEYOND_WINDOW))

    def from_shards() -> Iterator[Bags]:
        while True:
            yield from whole.batches(segment, threads)

    def read() -> None:
        for _ in whole.batches(segment, threads):
            pass

    def plan(batches: Iterator[Bags], found: Times) -> None:
        plans = plan_segment(policy.planner(window), batches)
        next(plans)  # of which the window is filled

        def work() -> None:
            for _ in itertools.islice(plans, steps):
                pass

        found.run(steps * arguments.batch_size, work)

    times = {part: Times() for part in PARTS}
    for _ in range(arguments.runs):
        times["read"].run(steps * arguments.batch_size, read)
        plan(itertools.cycle(in_memory), times["plan"])
        plan(from_shards(), times["both"])
    return times


def time_to_start(folder: Path, arguments: argparse.Namespace, how: str) -> float:
    """Seconds that the choice of a window takes for the whole run, which comes before the first step."""
    whole = configured(folder, arguments, cache=CacheConfig(measure=how))
    start = time.perf_counter()
    choose_window(whole, _TRAINERS)
    return time.perf_counter() - start
