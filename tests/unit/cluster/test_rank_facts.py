"""What ranks know of GPUs and memory, from the variables that Slurm and users set."""

import pytest

from bagpipe_hpc.cluster.rank_facts import RankFacts, rank_places
from bagpipe_hpc.cluster.role_placement import RankPlace

FREE = 100 << 30


def facts(environment: dict[str, str], installed_gpus: int = 0) -> RankFacts:
    return RankFacts.of(environment, installed_gpus, FREE)


@pytest.mark.parametrize(
    ("environment", "memory_bytes"),
    [
        ({}, FREE),
        ({"SLURM_MEM_PER_NODE": "4096"}, 4 << 30),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "8"}, 16 << 30),
        ({"SLURM_MEM_PER_CPU": "2048"}, FREE),  # of how many cores is not known
        ({"SLURM_MEM_PER_NODE": "0"}, FREE),  # all of the node
        ({"SLURM_MEM_PER_NODE": "4096", "SLURM_HET_SIZE": "2"}, FREE),  # of the first component
        ({"SLURM_MEM_PER_NODE": "999999999"}, FREE),  # of another node: the launcher hands on its own environment
    ],
)
def test_memory(environment: dict[str, str], memory_bytes: int) -> None:
    assert facts(environment).memory_bytes == memory_bytes


@pytest.mark.parametrize(
    ("environment", "visible", "allotted"),
    [
        ({}, None, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, ("0", "1", "2"), 0),
        ({"CUDA_VISIBLE_DEVICES": ""}, (), 0),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, (), 0),
        ({"CUDA_VISIBLE_DEVICES": "2,-1,0"}, ("2",), 0),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8f, GPU-03"}, ("GPU-8f", "GPU-03"), 0),
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_STEP_GPUS": "0,1"}, None, 4),
        ({"SLURM_STEP_GPUS": "4,5", "SLURM_JOB_GPUS": "4,5,6"}, None, 2),
        ({"SLURM_JOB_GPUS": "4,5,6"}, None, 0),  # of the node where the job's script runs
    ],
)
def test_gpus(environment: dict[str, str], visible: tuple[str, ...] | None, allotted: int) -> None:
    found = facts(environment)
    assert (found.visible_gpus, found.allotted_gpus) == (visible, allotted)


def gpus_and_groups(ranks: list[RankFacts], hosts: list[int]) -> list[tuple[int, int]]:
    return [(place.gpus, place.gpu_group) for place in rank_places(ranks, hosts)]


def test_all_ranks_of_a_host_see_all_gpus() -> None:
    assert gpus_and_groups([facts({"CUDA_VISIBLE_DEVICES": "0,1"})] * 3, [0, 0, 0]) == [(2, 0)] * 3


def test_a_gpu_for_each_task() -> None:
    """Under its own number, or, where control groups hide the others, always under number 0."""
    slurm = {"SLURM_GPUS_ON_NODE": "3"}
    numbered = [facts(slurm | {"CUDA_VISIBLE_DEVICES": str(number)}) for number in range(3)]
    assert gpus_and_groups(numbered, [0] * 3) == [(3, 0), (3, 1), (3, 2)]
    hidden = [facts(slurm | {"CUDA_VISIBLE_DEVICES": "0"})] * 3
    assert gpus_and_groups(hidden, [0] * 3) == [(3, 0), (3, 1), (3, 2)]


def test_one_gpu_for_all_ranks_of_a_host() -> None:
    assert (
        gpus_and_groups([facts({"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "1"})] * 3, [0] * 3) == [(1, 0)] * 3
    )


def test_hosts_are_counted_apart() -> None:
    ranks = [facts({}), facts({"CUDA_VISIBLE_DEVICES": "0,1"}), facts({"CUDA_VISIBLE_DEVICES": "0,1"})]
    assert rank_places(ranks, [0, 1, 2]) == [
        RankPlace(0, 0, FREE, 0),
        RankPlace(1, 2, FREE, 1),
        RankPlace(2, 2, FREE, 2),
    ]


def test_without_variables_the_driver_tells() -> None:
    assert gpus_and_groups([facts({}, 8)] * 2, [0, 0]) == [(8, 0)] * 2


def test_an_environment_of_another_host_is_not_believed() -> None:
    """mpirun hands the variables of the node where it was started to nodes without a GPU."""
    environment = {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "2"}
    ranks = [facts(environment, 2), facts(environment, 0)]
    assert [place.gpus for place in rank_places(ranks, [0, 1])] == [2, 0]


def test_srun_hands_on_what_the_first_node_of_a_heterogeneous_job_sees() -> None:
    """As Slurm 22.05 sets them: two nodes with two GPUs, then one without any."""
    handed_on = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURM_JOB_GPUS": "0,1",
        "SLURM_MEM_PER_NODE": "3072",
        "SLURM_HET_SIZE": "2",
    }
    with_gpus = facts(handed_on | {"SLURM_GPUS_ON_NODE": "2", "SLURM_STEP_GPUS": "0,1"})
    places = rank_places([with_gpus, with_gpus, facts(handed_on)], [0, 1, 2])
    assert [place.gpus for place in places] == [2, 2, 0]


def test_a_run_on_cpus_ignores_gpus() -> None:
    places = rank_places([facts({"CUDA_VISIBLE_DEVICES": "0,1"}, 2)] * 2, [0, 0], use_gpus=False)
    assert [place.gpus for place in places] == [0, 0]


def test_the_least_memory_that_a_rank_has_counts() -> None:
    ranks = [facts({}), facts({"SLURM_MEM_PER_NODE": "4096"})]
    assert [place.memory_bytes for place in rank_places(ranks, [0, 0])] == [4 << 30] * 2


def test_this_process_has_some_memory() -> None:
    assert 1 << 20 < RankFacts.here().memory_bytes < 1 << 50
