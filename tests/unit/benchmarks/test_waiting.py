"""What trainers wait for is measured in the steady state, and for batches of the size that was asked for."""

import argparse
from pathlib import Path

import pytest

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.errors import ConfigError
from benchmarks import waiting
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.watched_steps import WatchedSteps
from benchmarks.jobs.workload import Workload


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, tuple[StepRange, list[str]]]:
    """The steps and settings of each workload's last job, whose steps take 10 ms and wait for a quarter of it."""
    found: dict[str, tuple[StepRange, list[str]]] = {}
    room: dict[str, int] = {}

    def shards(workload: Workload, _: Path, steps: int, batch_size: int) -> Path:
        room[workload.name] = steps * batch_size
        return tmp_path

    def watch(workload: Workload, _: Path, __: RoleLayout, steps: StepRange, settings: list[str]) -> WatchedSteps:
        assert room[workload.name] >= steps.total * workload.config(settings).train.batch_size
        found[workload.name] = steps, settings
        return WatchedSteps(10.0, 8.0, 1.0, 0.5, 0.0, [{"wait_reductions_ms": 2.5, "total_ms": 10.0}])

    monkeypatch.setattr(waiting, "FOLDER", tmp_path)
    monkeypatch.setattr(waiting, "watch_steps", watch)
    monkeypatch.setattr(Workload, "shards", shards)
    return found


def test_steps_behind_the_window_count(watched: dict[str, tuple[StepRange, list[str]]]) -> None:
    report = waiting.run(argparse.Namespace(quick=True, runs=1, set=["train.batch_size=1000"]))
    assert {name: steps for name, (steps, _) in watched.items()} == {
        "quickstart": StepRange(first=40, last=80, total=183),
        "embedding_bound": StepRange(first=200, last=240, total=743),
    }
    assert [settings for _, settings in watched.values()] == [["train.dense_sums=mpi", "train.batch_size=1000"]] * 2
    assert [(job["samples_per_s"], job["waiting"]) for job in report.figures["jobs"]] == [(1e5, 0.25)] * 4


def test_what_is_compared_is_not_the_users(watched: dict[str, tuple[StepRange, list[str]]]) -> None:
    with pytest.raises(ConfigError, match=r"the benchmark sets train\.dense_sums itself"):
        waiting.run(argparse.Namespace(quick=True, runs=1, set=["train.dense_sums=mpi"]))
    assert not watched
