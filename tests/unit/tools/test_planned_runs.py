"""What commands plan without starting it: from the start, and not for hundreds of trainers without samples."""

from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.cli import commands
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.run.feedback.hearing import place_of
from bagpipe_hpc.tools import planned_runs
from bagpipe_hpc.tools.planned_runs import plain_run
from tests.unit.tools.small_clicks import small_config

ASKING = {
    "plan": ["--trainers", "2", "301"],
    "plan for nodes": ["--nodes", "2", "--trainers-per-node", "1000", "--compute-us-per-sample", "1"],
    "simulate": ["--trainers", "301", "--compute-us-per-sample", "1", "--rows", "100"],
    "compare-policies": ["--trainers", "301", "--policies", "bagpipe"],
    "compare-placements": ["--trainers", "301", "--placements", "modulo"],
}


@pytest.mark.parametrize("name", ASKING)
def test_most_trainers_have_samples(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For thousands of them planning took hours."""
    config = tmp_path / "run.toml"
    config.write_text("train.batch_size = 100\n", encoding="utf-8")
    command = name.partition(" ")[0]
    assert commands.main([command, str(config), *ASKING[name]]) == 2
    said = capsys.readouterr().err
    assert "trainers, and a batch has 100 samples (train.batch_size): ask for 256 at most, or use larger" in said
    assert said.startswith(
        f"bagpipe: error: {'--nodes and --trainers-per-node' if 'nodes' in name else '--trainers'}: "
    )


def test_a_run_is_planned_from_its_start(tmp_path: Path) -> None:
    config = load_config(small_config(tmp_path), ["train.batch_size=50", "train.resume=no-checkpoint"])
    assert plain_run(config).steps_done == 0


def test_a_replayed_run_is_planned_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment knows the evaluations before it; by these, `fae` orders its samples."""
    fae = ["policy.name=fae", "policy.hot_rows=6300", "policy.adapt_share=true", "train.evaluate_every_steps=5"]
    config = load_config(small_config(tmp_path), [*fae, "train.batch_size=50"])
    run = prepare_run(config)
    heard = tuple(Heard(*place_of(run, segment), 0.5) for segment in run.schedule if segment.is_heard)
    monkeypatch.setattr(planned_runs, "prepare_run", lambda _: replace(run, replayed=heard))
    counts = [len(segment.heard) for segment in plain_run(config).schedule if segment.is_training]
    assert counts == [0, 1, 2, 3]
