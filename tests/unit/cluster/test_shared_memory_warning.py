"""Too little room in /dev/shm is said before MPI starts, once a host."""

import pytest

from bagpipe_hpc.cluster.shared_memory_warning import shared_memory_warning


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"MPI_LOCALNRANKS": "5", "MPI_LOCALRANKID": "0"}, 5),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, 5),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3),5", "SLURM_LOCALID": "0"}, 5),
        ({"SLURM_STEP_TASKS_PER_NODE": "", "SLURM_LOCALID": "0"}, 1),
    ],
)
def test_the_ranks_of_a_host_need_room(environment: dict[str, str], ranks: int) -> None:
    needed = ranks * 5_400_000
    assert shared_memory_warning(needed, environment) == ""
    said = shared_memory_warning(needed - 100_000, environment)
    assert f"has {needed / 1e6 - 0.1:.1f} MB free, and MPI takes up to {needed / 1e6:.1f} MB" in said


@pytest.mark.parametrize("variable", ["MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"])
def test_one_rank_of_a_host_says_it(variable: str) -> None:
    assert shared_memory_warning(0, {variable: "1"}) == ""
