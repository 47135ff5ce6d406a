"""How long the dense half of a step takes with each code for linear layers: what `kernels.linear = "auto"` decides by.

All trainers run the same one at the same moment, as they will in training. A trainer that ran alone would have the
memory, the last cache and, where two hardware threads share a core, its units to itself: one may gain more by that.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.contract import TakesKernels
from bagpipe_hpc.models.dropout import DropoutMasks
from bagpipe_hpc.models.embeddings import Embeddings, random_embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.step.compute_setup import model_kernels
from bagpipe_hpc.step.dense.passes import forward_backward

_PASS_GFLOP = 3.0
"""Of each thread in a pass at most, 30 ms at 100 GFLOP/s: larger slices are timed by a part of their samples."""
_ENOUGH_S = 0.9
"""No pass starts after so many seconds of passes, but for those that a median needs."""
_FEWEST, _MOST = 3, 9
"""Timed passes with each code; one before them is not timed."""


def time_linear_layers(
    config: Config,
    facts: ModelFacts,
    device: torch.device,
    implementations: Sequence[str],
    slices: int,
    slowest: Callable[[float], float],
) -> dict[str, float]:
    """Seconds of the dense half of a step, forward and backward, with each code for linear layers: `compared_seconds`.

    Args:
        config: of the run; its model takes kernels.
        facts: sizes of the model's inputs.
        device: where this trainer computes, with the threads that it will have.
        implementations: values of `kernels.linear`; they take turns.
        slices: of a batch, one a trainer.
        slowest: the seconds that the slowest trainer took for a pass, from this trainer's; keeps all in step.
    """
    model = build_model(config.model, facts).to(device)
    assert isinstance(model, TakesKernels), "else there is nothing to choose"
    masks = DropoutMasks(model, config.train.seed)
    kernels = {name: model_kernels(config, device, name) for name in implementations}
    weights = sum(weight.numel() for weight in model.parameters() if weight.dim() > 1)
    inputs = _inputs(facts, samples_of_a_pass(config.train.batch_size, slices, weights), device)

    def seconds(name: str) -> float:
        model.use_kernels(kernels[name])
        masks.begin(1, torch.arange(len(inputs[0]), device=device))
        return slowest(_pass_seconds(model, inputs))

    return compared_seconds(implementations, seconds)


def samples_of_a_pass(batch_size: int, slices: int, weights: int) -> int:
    """A trainer's slice of a batch, or less of it where the linear layers have so many weights that it takes long."""
    sample_gflop = 6e-9 * weights / torch.get_num_threads()
    return max(1, min(math.ceil(batch_size / slices), int(_PASS_GFLOP / sample_gflop)))


def compared_seconds(names: Sequence[str], measure: Callable[[str], float]) -> dict[str, float]:
    """Measure each of `names` in turn, the first time untimed, and say how they compare.

    Of the first one it is the median of the seconds that `measure` returns; of each other one that median times the
    median of its ratios to the first, turn by turn: another program that runs for some turns slows all of them.
    Of 14 comparisons on two busy cores, medians of each alone had the slower code before the faster one three times,
    these ratios never.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    spent_s, turns = 0.0, 0
    while turns <= _FEWEST or (turns <= _MOST and spent_s < _ENOUGH_S):
        for name in names:
            seconds = measure(name)
            spent_s += seconds
            if turns:
                found[name].append(seconds)
        turns += 1
    first = found[names[0]]
    ratios = {name: [own / base for own, base in zip(found[name], first, strict=True)] for name in names}
    return {name: statistics.median(first) * statistics.median(ratios[name]) for name in names}


def _inputs(facts: ModelFacts, samples: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, Embeddings]:
    """Dense features, labels and embeddings; their values do not matter."""
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(samples, facts.dense_features, generator=generator)
    labels = torch.zeros((samples, facts.labels) if facts.labels > 1 else samples)
    return dense.to(device), labels.to(device), random_embeddings(facts, samples, generator, device)


def _pass_seconds(model: nn.Module, inputs: tuple[torch.Tensor, torch.Tensor, Embeddings]) -> float:
    dense, labels, embeddings = inputs
    model.zero_grad()
    start = time.perf_counter()
    forward_backward(model, dense, labels, embeddings.detached(), len(labels))
    return time.perf_counter() - start
