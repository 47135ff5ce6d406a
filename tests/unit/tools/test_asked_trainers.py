"""No command plans for hundreds of trainers without samples: for thousands of them that took hours."""

from pathlib import Path

import pytest

from bagpipe_hpc.cli import commands

ASKING = {
    "plan": ["--trainers", "2", "301"],
    "plan for nodes": ["--nodes", "2", "--trainers-per-node", "1000", "--compute-us-per-sample", "1"],
    "simulate": ["--trainers", "301", "--compute-us-per-sample", "1", "--rows", "100"],
    "compare-policies": ["--trainers", "301", "--policies", "bagpipe"],
    "compare-placements": ["--trainers", "301", "--placements", "modulo"],
}


@pytest.mark.parametrize("name", ASKING)
def test_most_trainers_have_samples(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "run.toml"
    config.write_text("train.batch_size = 100\n", encoding="utf-8")
    command = name.partition(" ")[0]
    assert commands.main([command, str(config), *ASKING[name]]) == 2
    said = capsys.readouterr().err
    assert "trainers, and a batch has 100 samples (train.batch_size): ask for 256 at most, or use larger" in said
    assert said.startswith(
        f"bagpipe: error: {'--nodes and --trainers-per-node' if 'nodes' in name else '--trainers'}: "
    )
