"""`python -m benchmarks dense`: the dense half of a training step in one process, on one thread.

Implementations take turns, and times are processor time, so that other load matters little. The floor of a step is its
matrix products at the rate that oneDNN reaches on one large product in the same run.

Legend: `B` samples of a slice, `F` sparse features, `D` embedding width.
"""

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.config.schema import ModelConfig, OptimizerConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.layers.interaction import choose_interaction, torch_interaction
from bagpipe_hpc.models.layers.linear import (
    bfloat16_linear,
    blas_linear,
    check_bfloat16,
    linear_kernels,
    onednn_linear,
    torch_linear,
)
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer
from bagpipe_hpc.step.dense.passes import forward_backward
from bagpipe_hpc.tools.report import Report, median

_CPU = torch.device("cpu")
_DENSE_FEATURES, _SPARSE_FEATURES = 13, 26
_WARM_UP_STEPS = 3
_STEPS_OF_A_RUN = 5


@dataclass(frozen=True)
class DenseWorkload:
    """A trainer's slice of a batch.

    Attributes:
        name: in tables.
        samples: B.
        model: widths.
    """

    name: str
    samples: int
    model: ModelConfig

    @property
    def gigaflop(self) -> float:
        """Of a step's matrix products: three a layer, but two of the first, whose inputs are data."""
        width = self.model.embedding_dim
        mlps: DLRMSettings = self.model.settings
        bottom = [_DENSE_FEATURES, *mlps.bottom_mlp, width]
        top = [width + _SPARSE_FEATURES * (_SPARSE_FEATURES + 1) // 2, *mlps.top_mlp, 1]
        weights = [inputs * outputs for widths in (bottom, top) for inputs, outputs in pairwise(widths)]
        return 2 * self.samples * (3 * sum(weights) - weights[0]) / 1e9


WORKLOADS = (
    DenseWorkload("quickstart", 1024, ModelConfig()),
    DenseWorkload("large", 8192, ModelConfig(embedding_dim=48)),
)


def run(arguments: argparse.Namespace) -> Report:
    """Measure; arguments: `quick`, `runs`."""
    keep_all_freed_memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        report = Report("dense", {"threads": 1, "torch": torch.__version__, "workloads": []})
        for workload in WORKLOADS[: 1 if arguments.quick else None]:
            _add_workload(report, workload, arguments.runs)
        return report
    finally:
        torch.set_num_threads(threads)


def _add_workload(report: Report, workload: DenseWorkload, runs: int) -> None:
    steps = _steps(workload)
    for step in steps.values():
        for _ in range(_WARM_UP_STEPS):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    faults: dict[str, list[float]] = {name: [] for name in steps}
    rates = []
    for _ in range(runs):
        rates.append(_product_rate())
        for name, step in steps.items():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            times[name].append(_seconds(step, _STEPS_OF_A_RUN))
            faults[name].append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / _STEPS_OF_A_RUN)
    rate = median(rates)
    figures: dict[str, Any] = {"name": workload.name, "samples": workload.samples, "gigaflop": workload.gigaflop}
    figures |= {"product_gflop_per_s": rate, "floor_ms": workload.gigaflop / rate * 1e3, "implementations": []}
    table = []
    for name in steps:
        step_ms = median([seconds * 1e3 for seconds in times[name]])
        own = {"name": name, "step_ms": step_ms, "gflop_per_s": workload.gigaflop / step_ms * 1e3}
        own["page_faults"] = median(faults[name])
        figures["implementations"].append(own)
        table.append([name, f"{step_ms:.2f}", f"{own['gflop_per_s']:.0f}", f"{own['page_faults']:.0f}"])
    report.figures["workloads"].append(figures)
    title = (
        f"{workload.name}: {workload.samples} samples, D = {workload.model.embedding_dim}, {workload.gigaflop:.2f} "
        f"GFLOP a step; float32 floor {figures['floor_ms']:.2f} ms at {rate:.0f} GFLOP/s"
    )
    report.table(title, ["processor time, medians", "ms a step", "GFLOP/s", "page faults"], table)


def _steps(workload: DenseWorkload) -> dict[str, Callable[[], None]]:
    """A function for each implementation that trains one step."""
    own = linear_kernels("auto")
    interaction = choose_interaction("auto", _CPU)
    kernels = {
        "torch": ModelKernels(torch_linear, torch_interaction),
        "torch, own interaction": ModelKernels(torch_linear, interaction),
        "kernels.linear=torch": ModelKernels(blas_linear(own), interaction),
        "kernels.linear=onednn": ModelKernels(onednn_linear(own), interaction),
    }
    try:
        check_bfloat16(_CPU)
        kernels["bfloat16 layers"] = ModelKernels(bfloat16_linear, interaction)
    except ConfigError:  # this processor has none
        pass
    generator = torch.Generator().manual_seed(1)
    dense = torch.rand(workload.samples, _DENSE_FEATURES, generator=generator)
    labels = (torch.rand(workload.samples, generator=generator) > 0.75).float()
    shape = (workload.samples, _SPARSE_FEATURES, workload.model.embedding_dim)
    rows = torch.randn(shape, generator=generator) * 0.1
    facts = ModelFacts.one_hot(_DENSE_FEATURES, _SPARSE_FEATURES, workload.model.embedding_dim, seed=1)
    models = {name: build_model(workload.model, facts, chosen) for name, chosen in kernels.items()}
    return {
        name: _step(model, dense, labels, Embeddings.of_stacked(facts.features, rows)) for name, model in models.items()
    }


def _step(model: nn.Module, dense: Tensor, labels: Tensor, embeddings: Embeddings) -> Callable[[], None]:
    optimizer = dense_optimizer(OptimizerConfig(), model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        forward_backward(model, dense, labels, embeddings.detached(), 2 * len(labels))
        optimizer.step()

    return step


def _product_rate() -> float:
    """GFLOP/s of oneDNN on one product of 1024 by 1024 by 1024."""
    side = 1024
    left, right = torch.rand(side, side), torch.rand(side, side)

    def product() -> None:
        torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")

    product()
    return 2 * side**3 / 1e9 / _seconds(product, 5)


def _seconds(call: Callable[[], None], times: int) -> float:
    """Processor time of a call, the mean of several."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times
