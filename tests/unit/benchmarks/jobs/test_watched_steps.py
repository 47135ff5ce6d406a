"""A job is watched between two of its reports; one that ends too early has no figures."""

from pathlib import Path

import pytest

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.errors import ConfigError
from benchmarks.jobs import watched_steps
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.watched_command import CommandError
from benchmarks.jobs.watched_steps import watch_steps
from benchmarks.jobs.workload import WORKLOADS

LAYOUT = RoleLayout(servers=1, trainers=1)
STEPS = StepRange(first=10, last=30, total=50)
RANKS = """#!/usr/bin/env python3
import json, pathlib, sys, time
settings = dict(given.split("=", 1) for given in sys.argv[7:])
pathlib.Path(__file__).with_name("settings").write_text(json.dumps(settings))
output = pathlib.Path(settings["train.output"])
output.mkdir()
with (output / "metrics.jsonl").open("w", buffering=1) as file:
    for step in range(10, int(settings["train.max_steps"]) + 1, 10):
        mean = {"total_ms": step}
        print(json.dumps({"event": "progress", "step": step, "of_trainers": {"mean": mean}}), file=file)
        if str(step) == settings.get("train.seed"):
            sys.exit(0)
        time.sleep(0.2)
"""
"""In place of run_ranks.sh: reports every ten steps, and ends after as many as train.seed says."""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "scripts" / "run_ranks.sh"
    script.parent.mkdir()
    script.write_text(RANKS)
    script.chmod(0o755)
    monkeypatch.setattr(watched_steps, "REPOSITORY", tmp_path)
    monkeypatch.setattr(watched_steps, "FOLDER", tmp_path)
    return script.parent


def watched(overrides: list[str]) -> watched_steps.WatchedSteps:
    return watch_steps(WORKLOADS["quickstart"], Path("shards"), LAYOUT, STEPS, overrides)


def test_steps_between_two_reports_are_timed(scripts: Path) -> None:
    found = watched([])
    assert 0.3e3 < found.step_ms * (STEPS.last - STEPS.first) < 3e3
    assert [told["total_ms"] for told in found.told] == [30, 20]
    settings = (scripts / "settings").read_text()
    assert '"train.max_steps": "50"' in settings
    assert '"train.device": "cpu"' in settings, "oneDNN's layers are for CPUs"


@pytest.mark.parametrize("last", [10, 20])
def test_a_job_that_ends_too_early_is_told(scripts: Path, last: int) -> None:
    with pytest.raises(CommandError, match=f"ended at step {last}, and steps 10 to 30 count"):
        watched([f"train.seed={last}"])
    assert (scripts / "settings").exists()


def test_what_the_job_sets_is_refused(scripts: Path) -> None:
    with pytest.raises(ConfigError, match=r"the benchmark sets train\.max_steps itself"):
        watched(["train.max_steps=20"])
    assert not (scripts / "settings").exists()
