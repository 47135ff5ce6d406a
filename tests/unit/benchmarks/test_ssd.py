"""Which steps of a run with rows on SSD count; no run is started here."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import ConfigError
from benchmarks import ssd
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.workload import Workload

STEPS = StepRange(first=60, last=80, total=183)


def arguments(**changes: Any) -> argparse.Namespace:
    values: dict[str, Any] = {"path": None, "shares": None, "plain": False, "steps": None, "width": 8, "runs": 1}
    return argparse.Namespace(**values | {"shard_steps": None, "set": [], "quick": True} | changes)


def test_the_cold_cache_and_the_emptying_window_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that count take 10 ms, the others longer or less."""
    given: dict[str, str] = {}

    def run_ranks(_: Sequence[int], __: object, command: Sequence[str | Path], share: Path) -> str:
        assert share == tmp_path
        given.update(str(word).split("=", 1) for word in command[5:])
        output = Path(given["train.output"])
        (output / "logs").mkdir(parents=True)
        lines = [
            {"event": "progress", "step": step, "loss": 0.5, "samples_per_s": 6400.0}
            | {"of_trainers": {"mean": {"total_ms": total_ms, "wait_rows_ms": total_ms / 10}}}
            for step, total_ms in [(60, 90.0), (70, 9.0), (80, 11.0), (90, 1.0), (180, 1.0)]
        ]
        (output / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        server = {"role": "server", "peak_bytes": 1e6, "processor_s": 1.0}
        (output / "resources.json").write_text(json.dumps({"ranks": [server]}))
        (output / "logs" / "server-0.log").write_text("")
        return ""

    monkeypatch.setattr(ssd, "_FOLDER", tmp_path)
    monkeypatch.setattr(ssd, "run_ranks", run_ranks)
    asked = arguments(set=["train.seed=2"])
    found = ssd._run_case(ssd.Case(25), Path("x.toml"), Path("shards"), 10**9, tmp_path, STEPS, asked)
    assert (given["train.max_steps"], given["lookahead.batches"], given["train.seed"]) == ("183", "40", "2")
    assert found["samples_per_s"] == pytest.approx(6400 * 9.0 / 10.0)
    assert found["wait_rows_share"] == pytest.approx(0.1)


def test_a_look_has_steps_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shards of a quick look are made before anything is measured."""
    made: list[int] = []

    def shards(_: object, __: Path, steps: int, ___: int) -> Path:
        made.append(steps)
        raise KeyboardInterrupt

    monkeypatch.setattr(ssd, "_FOLDER", tmp_path)
    monkeypatch.setattr(Workload, "shards", shards)
    with pytest.raises(KeyboardInterrupt):
        ssd.run(arguments())
    assert made == [200]
    assert made[0] >= STEPS.total


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"shard_steps": 100}, "--shard-steps 100: a run takes 183 steps; use as many or more"),
        ({"set": ["lookahead.batches=5"]}, r"the benchmark sets lookahead\.batches itself"),
        ({"set": ["tables.memory_gb=1"]}, r"the benchmark sets tables\.memory_gb itself"),
    ],
)
def test_what_would_measure_something_else_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ssd.run(arguments(**changes))
