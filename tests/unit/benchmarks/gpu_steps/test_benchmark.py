"""Which steps are profiled; no GPU is used here."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.gpu_steps import benchmark as gpu_steps
from benchmarks.jobs.workload import WORKLOADS, Workload


def test_the_oracle_works_in_all_profiled_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L = 40 and C = 10: as many steps come before the profiled ones as are profiled, behind the first window."""
    given: list[str] = []
    room: list[int] = []

    def run_ranks(_: Sequence[int], __: object, command: Sequence[str | Path], share: Path) -> str:
        assert share == tmp_path
        given.extend(map(str, command))
        raise KeyboardInterrupt

    def shards(_: Workload, __: Path, steps: int, ___: int) -> Path:
        room.append(steps)
        return tmp_path

    monkeypatch.setattr(gpu_steps, "_FOLDER", tmp_path)
    monkeypatch.setattr(gpu_steps, "run_ranks", run_ranks)
    monkeypatch.setattr(Workload, "shards", shards)
    with pytest.raises(KeyboardInterrupt):
        gpu_steps._measure(WORKLOADS["quickstart"], argparse.Namespace(steps=20, set=[], timelines=None))
    assert given[3:5] == ["61", "80"]
    assert room == [80 + 2 * 40 + 2 * 10 + 3]
    assert f"train.max_steps={room[0]}" in given
