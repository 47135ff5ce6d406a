"""What commands plan without starting it: from the start, and not for hundreds of trainers without samples."""

from pathlib import Path

import pytest

from bagpipe_hpc.cli import commands
from bagpipe_hpc.config.file import load_config
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
