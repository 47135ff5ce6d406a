"""What the peers share: a run's settings and batches, the clock, and the line that they print.

A peer is started like `bagpipe train`, with the same configuration file and overrides, and reads the same shards in the
same order. It is timed over the steps after the warm-up. The clock stops while it reads a batch, as if a loader with
cores of its own did that.

Legend: `n` samples of a slice, `N` dense features, `F` sparse features.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.evaluation.click_evaluation import measure
from bagpipe_hpc.plan.schedule import Segment, build_schedule, training_batch_sizes
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.shards.sample_stream import SampleStream

FIRST_LOSSES = 5
"""Steps whose losses a peer prints, to see that all train the same."""

_Item = TypeVar("_Item")


class Batch(NamedTuple):
    """A slice of a batch.

    Attributes:
        dense: float32 `[n, N]`.
        ids: int64 `[n, F]`, each local to its table.
        labels: float32 `[n]`.
    """

    dense: Tensor
    ids: Tensor
    labels: Tensor

    def pinned(self) -> "Batch":
        """The same where a GPU can fetch it by itself."""
        return Batch(*(part.pin_memory() for part in self))

    def to(self, device: str) -> "Batch":
        """The same on a device."""
        return Batch(*(part.to(device, non_blocking=True) for part in self))


@dataclass(frozen=True)
class PeerRun:
    """A run as the command line describes it.

    Attributes:
        job: settings, data and schedule.
        warm_up_steps: steps before the clock starts.
        onednn: whether linear layers go through oneDNN.
        progress: file that gets a line a step: how many are done, and seconds so far without reading.
        device: where it computes; of the programs that say so.
    """

    job: Run
    warm_up_steps: int
    onednn: bool
    progress: Path | None = None
    device: str = "cpu"

    @classmethod
    def from_command_line(cls, description: str | None) -> "PeerRun":
        """Parse the command line, and set the number of threads."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("config", type=Path, metavar="CONFIG.toml", help="settings, as for bagpipe train")
        parser.add_argument("overrides", nargs="*", metavar="section.field=value", help="replace single settings")
        parser.add_argument("--warm-up-steps", type=int, default=10, metavar="N", help="steps before the clock (10)")
        parser.add_argument("--onednn", action="store_true", help="linear layers through oneDNN instead of MKL")
        parser.add_argument("--progress", type=Path, metavar="FILE", help="write steps done and seconds, a line a step")
        arguments = parser.parse_args()
        config = load_config(arguments.config, arguments.overrides)
        _require_shared_settings(parser, config)
        manifest = load_manifest(Path(config.data.path))
        schedule = build_schedule(config.train, manifest.rows("train"), manifest.rows("test"))
        torch.set_num_threads(config.train.threads)
        job = Run(config, manifest, tuple(schedule))
        device = "cuda" if config.train.device == "cuda" else "cpu"
        return cls(job, arguments.warm_up_steps, arguments.onednn, arguments.progress, device)


def _require_shared_settings(parser: argparse.ArgumentParser, config: Config) -> None:
    """Refuse what peers would leave aside in silence: they have a constant rate, and neither decay nor clipping."""
    default, optimizer = Config(), config.optimizer
    set_ones = {
        "features": config.features != default.features,
        "model.embedding_dim_of": bool(config.model.embedding_dim_of),
        "rows_rate": config.rows_rate != default.rows_rate,
        "dense_rate": config.dense_rate != default.dense_rate,
        "optimizer.rows_weight_decay": bool(optimizer.rows_weight_decay),
        "optimizer.rows_clip_norm": bool(optimizer.rows_clip_norm),
        "optimizer.dense_clip_norm": bool(optimizer.dense_clip_norm),
        "train.row_sums": config.train.row_sums != default.train.row_sums,
    }
    if names := [name for name, is_set in set_ones.items() if is_set]:
        parser.error(f"{', '.join(names)}: peers do not have this; leave it out")


def training_batches(job: Run, number: int = 0, slices: int = 1) -> Iterator[Batch]:
    """Slice `number` of each training batch of the run."""
    for segment in job.schedule:
        if segment.is_training:
            yield from _segment_batches(job, segment, number, slices)


def evaluation_batches(job: Run, number: int = 0, slices: int = 1) -> Iterator[Batch]:
    """Slice `number` of each batch of the test rows; none where the run does not end with an evaluation."""
    if not job.schedule[-1].is_training:
        yield from _segment_batches(job, job.schedule[-1], number, slices)


def _segment_batches(job: Run, segment: Segment, number: int, slices: int) -> Iterator[Batch]:
    with ExitStack() as stack:
        shards, order = stack.enter_context(job.shards(segment)), job.order(segment)
        streams = [SampleStream(read, order) for read in (shards.read_dense, shards.read_sparse, shards.read_labels)]
        for batch in range(segment.batches):
            first, last = segment.sample_range(batch)
            bounds = slice_bounds(last - first, slices)
            own = first + bounds[number], first + bounds[number + 1]
            yield Batch(*(torch.from_numpy(stream.read(*own)) for stream in streams))


class TimedBatches(Generic[_Item]):
    """Hands batches out and notes how long reading them took.

    Attributes:
        read_s: seconds spent on reading so far.
    """

    def __init__(self, batches: Iterator[_Item]) -> None:
        self._batches = batches
        self.read_s = 0.0

    def __iter__(self) -> Iterator[_Item]:
        return self

    def __next__(self) -> _Item:
        start = time.perf_counter()
        try:
            return next(self._batches)
        finally:
            self.read_s += time.perf_counter() - start


class StepClock:
    """Counts steps and times those after the warm-up, without the reading.

    Args:
        run: the run.
        batches: where the steps' batches come from.

    Attributes:
        first_losses: losses of the first steps, over the slice.
    """

    def __init__(self, run: PeerRun, batches: TimedBatches[_Item]) -> None:
        self._run = run
        self._batches = batches
        self._steps = 0
        self._start_s = self._now_s()
        self.first_losses: list[float] = []
        self._progress = run.progress.open("w", buffering=1, encoding="utf-8") if run.progress else None

    def step_done(self, loss: Tensor) -> None:
        """Note a step that ended, and its loss over the slice; a GPU may still be at it."""
        self._steps += 1
        if self._steps <= FIRST_LOSSES:
            self.first_losses.append(loss.item())
        if self._steps == self._run.warm_up_steps:
            self._wait()
            self._start_s = self._now_s()
        if self._progress:
            print(self._steps, self._now_s(), file=self._progress)

    def figures(self) -> dict[str, object]:
        """Speed and memory so far; the samples are those of whole batches."""
        self._wait()
        seconds = self._now_s() - self._start_s
        sizes = training_batch_sizes(self._run.job.schedule)
        return {
            "steps": self._steps,
            "samples_per_s": sum(sizes[self._run.warm_up_steps : self._steps]) / seconds,
            "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        }

    def _wait(self) -> None:
        if self._run.device == "cuda":
            torch.cuda.synchronize()

    def _now_s(self) -> float:
        return time.perf_counter() - self._batches.read_s


def train_and_evaluate(
    run: PeerRun,
    optimizers: Sequence[torch.optim.Optimizer],
    loss_of: Callable[[Batch], Tensor],
    logits_of: Callable[[Batch], NDArray[np.float32]],
) -> None:
    """Train one process over all batches of a run, evaluate, and print the line of figures.

    Args:
        run: the run.
        optimizers: of all weights.
        loss_of: mean loss of a batch, a scalar.
        logits_of: log-odds of a batch's samples, float32 `[n]`.
    """
    read = training_batches(run.job)
    batches = TimedBatches(read if run.device == "cpu" else (batch.pinned() for batch in read))
    clock = StepClock(run, batches)
    for batch in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(batch.to(run.device))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        clock.step_done(loss)
    figures = clock.figures() | {"first_losses": clock.first_losses}
    with torch.no_grad():
        tested = [(batch.labels.numpy(), logits_of(batch.to(run.device))) for batch in evaluation_batches(run.job)]
    print_result(figures | evaluation([labels for labels, _ in tested], [logits for _, logits in tested]))


def evaluation(labels: list[NDArray[np.float32]], logits: list[NDArray[np.float32]]) -> dict[str, object]:
    """AUC and log loss over the batches of the test rows, each `[n]`; empty where there are none."""
    if not labels:
        return {}
    found = measure(np.concatenate(labels), np.concatenate(logits))
    return {"auc": found.auc, "log_loss": found.log_loss}


def print_result(figures: dict[str, object]) -> None:
    """Print the line that `python -m benchmarks peers` reads."""
    print(json.dumps(figures), flush=True)
