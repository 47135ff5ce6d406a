"""The price of a step is what a line through its times has left at no samples."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.errors import ConfigError
from benchmarks import step_price
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.watched_steps import WatchedSteps
from benchmarks.jobs.workload import Workload


def test_a_step_without_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Steps of 2 ms a trainer and 0.25 a sample, of which trainers compute 1 ms and 0.125 a sample each."""
    watched: list[tuple[int, int, list[str]]] = []
    room: list[int] = []

    def watch(_: Workload, __: Path, layout: RoleLayout, steps: StepRange, settings: list[str]) -> WatchedSteps:
        (size,) = (int(name.partition("=")[2]) for name in settings if name.startswith("train.batch_size="))
        assert room[-1] >= size * steps.total
        assert steps.total == steps.last + 2 * 40 + 2 * 10 + 3, "the oracle works until the last"
        watched.append((steps.first, steps.last - steps.first, settings))
        trainers, samples = layout.trainers, size // layout.trainers
        computing = trainers * (1 + samples / 8)
        return WatchedSteps(2.0 * trainers + samples / 4, computing, trainers * 0.5, 0.25, 0.0, [])

    def shards(_: Workload, __: Path, steps: int, rows: int) -> Path:
        room.append(steps * rows)
        return tmp_path

    monkeypatch.setattr(step_price, "watch_steps", watch)
    monkeypatch.setattr(Workload, "shards", shards)
    arguments = argparse.Namespace(trainers=[1, 2], slices=[512, 4], runs=3, quick=False, set=["train.dense_sums=mpi"])
    report = step_price.run(arguments)
    prices: list[dict[str, Any]] = report.figures["prices"]
    assert prices == [
        {"trainers": 1, "step_ms": 2.0, "compute_ms": 1.0},
        {"trainers": 2, "step_ms": 4.0, "compute_ms": 1.0},
    ]
    assert len(watched) == 3 * 2 * 2
    assert {first for first, _, _ in watched} == {200}
    assert {(steps, settings[0]) for _, steps, settings in watched} == {
        *((1000, "train.batch_size=4"), (300, "train.batch_size=512")),
        *((1000, "train.batch_size=8"), (300, "train.batch_size=1024")),
    }
    assert all(settings[-1] == "train.dense_sums=mpi" for *_, settings in watched)
    assert "without samples: a step of 4.00 ms, of which 1.00 ms are computing" in report.lines


def test_slices_are_not_the_users() -> None:
    arguments = argparse.Namespace(trainers=[1], slices=[4], runs=1, quick=True, set=["train.batch_size=7"])
    with pytest.raises(ConfigError, match=r"the benchmark sets train\.batch_size itself"):
        step_price.run(arguments)
