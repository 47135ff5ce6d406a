"""The benchmark of the dense half counts what a step computes and reports every implementation."""

import argparse

import pytest
import torch

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.config.schema import ModelConfig
from benchmarks import dense
from benchmarks.dense import DenseWorkload


def test_a_steps_products_are_counted_once_each() -> None:
    """13-2-4 and 4+351-1 on 10 samples: three products a layer, two of the first."""
    workload = DenseWorkload(
        "small", 10, ModelConfig(embedding_dim=4, settings=DLRMSettings(bottom_mlp=(2,), top_mlp=()))
    )
    weights = [13 * 2, 2 * 4, (4 + 351) * 1]
    assert workload.gigaflop == pytest.approx(2 * 10 * (2 * weights[0] + 3 * weights[1] + 3 * weights[2]) / 1e9)


def test_it_reports_every_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    small = DenseWorkload(
        "small", 8, ModelConfig(embedding_dim=4, settings=DLRMSettings(bottom_mlp=(16,), top_mlp=(16,)))
    )
    monkeypatch.setattr(dense, "WORKLOADS", (small,))
    before = torch.get_num_threads()
    report = dense.run(argparse.Namespace(quick=True, runs=1))
    assert torch.get_num_threads() == before
    (figures,) = report.figures["workloads"]
    names = [own["name"] for own in figures["implementations"]]
    assert names[:4] == ["torch", "torch, own interaction", "kernels.linear=torch", "kernels.linear=onednn"]
    assert all(own["step_ms"] > 0 and own["gflop_per_s"] > 0 for own in figures["implementations"])
    assert figures["floor_ms"] == pytest.approx(small.gigaflop / figures["product_gflop_per_s"] * 1e3)
    assert "kernels.linear=onednn" in "\n".join(report.lines)
