"""What the environment says of the launcher decides whether MPI is started, and whether its ranks are one job."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.cli.outcome import launched_ranks
from bagpipe_hpc.mpi.start import running, world


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ({}, 1),
        ({"PMI_SIZE": "4", "PMI_RANK": "2"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}, 2),
        ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}, 3),
        ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0", "SLURM_PTY_PORT": "4711"}, 1),  # a shell of srun --pty
        ({"SLURM_NTASKS": "3", "SLURM_PROCID": "0"}, 1),  # the batch script
        ({"PMIX_RANK": "1"}, None),
        ({"PMI_SIZE": "1"}, 1),
    ],
)
def test_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], ranks: int | None) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_PTY_PORT", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched_ranks() == ranks


@pytest.mark.parametrize(("number", "says"), [("0", True), ("1", False)])
@pytest.mark.parametrize("command", ["train", "prepare"])
def test_ranks_that_mpi_does_not_join_do_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
    number: str,
    says: bool,
) -> None:
    """As of srun --mpi=none: each would train the reference, all in one folder."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_PTY_PORT", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "5")
    monkeypatch.setenv("SLURM_PROCID", number)
    monkeypatch.setattr(running, "mpi_running", lambda *_: nullcontext())
    monkeypatch.setattr(world, "world_size", lambda: 1)
    (tmp_path / "run.toml").write_text('data.path = "shards"\n')
    output = tmp_path / "out"
    arguments = {
        "train": [str(tmp_path / "run.toml"), f"train.output={output}"],
        "prepare": ["--input", str(tmp_path / "run.toml"), "--output", str(output)],
    }
    assert main([command, *arguments[command]]) == 2
    assert ("the launcher started 5 processes, but MPI sees one" in capsys.readouterr().err) == says
    assert not output.exists()
