"""No command plans for more trainers than a batch has samples: for thousands of them that took hours."""

from pathlib import Path

import pytest

from bagpipe_hpc.cli import commands

ASKING = {
    "plan": ["--trainers", "2", "101"],
    "plan for nodes": ["--nodes", "2", "--trainers-per-node", "1000", "--compute-us-per-sample", "1"],
    "simulate": ["--trainers", "101", "--compute-us-per-sample", "1", "--rows", "100"],
    "compare-policies": ["--trainers", "101", "--policies", "bagpipe"],
    "compare-placements": ["--trainers", "101", "--placements", "modulo"],
}


@pytest.mark.parametrize("name", ASKING)
def test_each_trainer_has_a_sample(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "run.toml"
    config.write_text("train.batch_size = 100\n", encoding="utf-8")
    command = name.partition(" ")[0]
    assert commands.main([command, str(config), *ASKING[name]]) == 2
    said = capsys.readouterr().err
    assert "trainers, and a batch has 100 samples (train.batch_size): ask for 100 at most, or use larger" in said
    assert said.startswith(
        f"bagpipe: error: {'--nodes and --trainers-per-node' if 'nodes' in name else '--trainers'}: "
    )
