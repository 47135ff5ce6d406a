"""`python -m benchmarks gpu_steps`: what is read of a profiler's timeline."""

import argparse
from typing import Any

import pytest
import torch

from benchmarks.gpu_steps import benchmark as gpu_steps
from benchmarks.gpu_steps.timeline import GpuWork, busy_us, by_kind, gpu_work, kind_of


def event(name: str, category: str, begin: float, duration: float, stream: int = 7) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": duration, "args": {"stream": stream}}


TIMELINE = {
    "traceEvents": [
        event("aten::linear", "cpu_op", 0, 500),
        event("sm90_xmma_gemm_f32f32_f32f32_f32_tn_n", "kernel", 10, 20),
        event("void bagpipe::(anonymous namespace)::gather_rows<4>(...)", "kernel", 25, 10, stream=13),
        event("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 50, 5, stream=13),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1},
    ]
}


def test_work_of_the_gpu_alone_is_read() -> None:
    work = gpu_work(TIMELINE)
    assert work == [
        GpuWork("products", 7, 10, 30),
        GpuWork("row operations", 13, 25, 35),
        GpuWork("copies to the GPU", 13, 50, 55),
    ]
    assert busy_us(work) == 30, "10 to 35 and 50 to 55"
    assert by_kind(work) == {"products": 20, "row operations": 10, "copies to the GPU": 5}


@pytest.mark.parametrize(
    ("name", "is_kernel", "kind"),
    [
        ("Memcpy DtoH (Device -> Pinned)", False, "copies from the GPU"),
        ("Memset (Device)", False, "rest"),
        ("DeviceRadixSortOnesweepKernel", True, "sorting of look-ups"),
        ("vectorized_elementwise_kernel", True, "rest"),
        ("void bagpipe::(anonymous namespace)::note_rows<1>(...)", True, "looks for NaN"),
    ],
)
def test_kinds(name: str, is_kernel: bool, kind: str) -> None:
    assert kind_of(name, is_kernel=is_kernel) == kind


def test_without_a_gpu_it_is_left_out_visibly(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m benchmarks all` goes on to the next benchmark."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = gpu_steps.run(argparse.Namespace(workload=None))
    assert report.lines == ["not run: torch sees no GPU here"]
    assert report.figures["not_run"] == ["torch sees no GPU here"]
