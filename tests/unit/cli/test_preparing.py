"""What the environment says of the launcher decides whether MPI is started."""

import pytest

from bagpipe_hpc.cli.outcome import launched_ranks


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ({}, 1),
        ({"PMI_SIZE": "4", "PMI_RANK": "2"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}, 2),
        ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}, 3),
        ({"SLURM_NTASKS": "3", "SLURM_PROCID": "0"}, 1),  # the batch script
        ({"PMIX_RANK": "1"}, None),
        ({"PMI_SIZE": "1"}, 1),
    ],
)
def test_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], ranks: int | None) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched_ranks() == ranks
