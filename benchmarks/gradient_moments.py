"""How much of a step is left when gradients are complete, beside what `bagpipe simulate` takes for it?

    python benchmarks/gradient_moments.py configs/criteo_terabyte.toml --samples 256 1024 8192
    python benchmarks/gradient_moments.py configs/criteo_terabyte.toml train.weight_gradients=late

Takes the steps of one slice in one process, on one thread, with look-ups drawn from half as many rows, and prints the
mean share of processor time that comes behind each group of dense gradients and behind the sums of row gradients. The
last line is one JSON object.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer
from bagpipe_hpc.models.sums.gradient_groups import gradient_groups, trainable
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.step_order import StepOrders
from bagpipe_hpc.step.compute_setup import layer_weights_of, model_kernels
from bagpipe_hpc.step.dense.passes import backward
from bagpipe_hpc.step.dense.updates import order_of_sums
from bagpipe_hpc.tools.report import Report

CPU = torch.device("cpu")
DENSE_FEATURES, SPARSE_FEATURES = 13, 26
WARM_UP = 3
TRAINERS = 2
"""Whose gradients would be summed: gradients of weights come last where somebody waits for those of rows."""
ROWS = "sums of row gradients"


class Moments:
    """Processor time at which something is complete, over many steps, as shares of a step that are left."""

    def __init__(self) -> None:
        self._steps = 0
        self._left: defaultdict[str, float] = defaultdict(float)
        self._seen: dict[str, float] = {}

    def see(self, what: str, *_: object) -> None:
        """Something is complete, unless it becomes so once more in this step."""
        self._seen[what] = time.thread_time()

    def end_step(self, start_s: float) -> None:
        """Count what was seen since `start_s`; the first steps warm up."""
        self._steps += 1
        if self._steps > WARM_UP:
            end_s = time.thread_time()
            for what, seen_s in self._seen.items():
                self._left[what] += (end_s - seen_s) / (end_s - start_s)
        self._seen.clear()

    def shares(self) -> Iterator[tuple[str, float]]:
        """Means, the largest first."""
        steps = self._steps - WARM_UP
        yield from sorted(((what, left / steps) for what, left in self._left.items()), key=lambda found: -found[1])


def measure(config: Config, facts: ModelFacts, samples: int, steps: int) -> Moments:
    """Train on one slice of random samples, again and again."""
    layer_weights = layer_weights_of(config, CPU, TRAINERS, side_by_side=True)
    model = build_model(config.model, facts, model_kernels(config, CPU, layer_weights=layer_weights))
    groups: Sequence[Sequence[torch.nn.Parameter]] = gradient_groups(model, side_by_side=True)
    if layer_weights:
        groups = order_of_sums(groups, layer_weights, config.train)
    dense_updates = dense_optimizer(config.optimizer, model.parameters())
    row_updates = build_row_optimizer(config.optimizer, config.rows_rate)
    rng = np.random.default_rng(config.train.seed)
    rows = samples * SPARSE_FEATURES // 2
    cache = RowCache(4 * rows, RowRecord.of(config), row_operations(config.kernels.backend, CPU, 1), CPU)
    slots = torch.from_numpy(rng.permutation(4 * rows)[:rows].astype(np.int32))
    positions = torch.from_numpy(rng.integers(0, rows, samples * SPARSE_FEATURES).astype(np.int32))
    order = cache.operations.order_look_ups(positions, rows)
    dense, labels = torch.rand(samples, DENSE_FEATURES), torch.ones(samples)
    moments, sums = Moments(), []

    def take(_: int, gradients: torch.Tensor) -> None:
        sums.append(cache.sum_gradients(gradients, positions, rows, order))
        moments.see(ROWS)

    for number, group in enumerate(groups, 1):
        for weight in group:
            weight.register_post_accumulate_grad_hook(partial(moments.see, f"dense gradients of group {number}"))  # type: ignore[no-untyped-call]
    for step in range(1, steps + WARM_UP + 1):
        start_s = time.thread_time()
        if layer_weights:
            layer_weights.begin_pass()
        dense_updates.zero_grad()
        looked_up = cache.look_up(slots, positions).view(samples, SPARSE_FEATURES, -1)
        embeddings = Embeddings.of_stacked(facts.features, looked_up).requiring_gradients()
        backward(trainable(model), embeddings, click_loss(model(dense, embeddings), labels, samples), take)
        cache.update(row_updates, slots, sums.pop(), step)
        dense_updates.step()
        moments.end_step(start_s)
    return moments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="section.field=value")
    parser.add_argument("--samples", type=int, nargs="+", default=[256, 1024, 8192], help="of a slice")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.overrides)
    if config.kernels.linear == "auto":
        config = replace(config, kernels=replace(config.kernels, linear="torch"))
    torch.set_num_threads(1)
    facts = ModelFacts.one_hot(DENSE_FEATURES, SPARSE_FEATURES, config.model.embedding_dim, config.train.seed)
    order = StepOrders.of(config, facts).by_messages
    predicted = {f"dense gradients of group {number}": dense.behind for number, dense in enumerate(order.sums, 1)}
    predicted[ROWS] = order.behind_rows
    found = {samples: dict(measure(config, facts, samples, arguments.steps).shares()) for samples in arguments.samples}
    report = Report("gradient_moments", {"steps": arguments.steps, "predicted": predicted, "measured": found})
    rows = [
        [what, f"{share:.1%}", *(f"{found[samples][what]:.1%}" for samples in found)]
        for what, share in sorted(predicted.items(), key=lambda entry: -entry[1])
    ]
    headings = ("share of a step that is left behind", "predicted", *(f"{samples} samples" for samples in found))
    report.table("when gradients are complete", headings, rows)
    report.finish(None)


if __name__ == "__main__":
    main()
