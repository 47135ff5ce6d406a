"""One way to sum dense gradients for all trainers: as set, or by the cores that they have."""

import pytest

from bagpipe_hpc.step.dense.sums_choice import TrainerCores, choose_dense_sums


def trainers(
    count: int, cores: int, threads: int, *, has_gpu: bool = False, host: int = 0, grouped: bool = False
) -> list[TrainerCores]:
    """So many on one host, all of whose cores each may use."""
    return [TrainerCores(host, frozenset(range(cores)), threads, has_gpu, grouped=grouped)] * count


@pytest.mark.parametrize("setting", ["horovod", "mpi", "grid"], ids=["by horovod", "by messages", "by a grid"])
def test_a_setting_is_taken(setting: str) -> None:
    choice = choose_dense_sums(setting, trainers(2, cores=64, threads=1))
    assert str(choice) == f"sums of dense gradients: {setting} (train.dense_sums = {setting})"


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ("mpi", trainers(1, cores=64, threads=1)),
        ("mpi", trainers(2, cores=2, threads=1)),
        ("mpi", trainers(2, cores=3, threads=1)),
        ("horovod", trainers(2, cores=4, threads=1)),
        ("mpi", trainers(2, cores=8, threads=4)),
        ("horovod", trainers(2, cores=10, threads=4)),
        ("horovod", trainers(2, cores=2, threads=1, has_gpu=True)),
        ("mpi", [*trainers(1, cores=2, threads=2), TrainerCores(1, frozenset(range(8)), 2, has_gpu=False)]),
        ("horovod", [TrainerCores(0, frozenset({k, k + 1}), 1, has_gpu=False) for k in (0, 2)]),
        ("horovod", trainers(63, cores=256, threads=1)),
        ("grid", trainers(64, cores=256, threads=1)),
        ("grid", trainers(64, cores=1, threads=1)),
        ("horovod", trainers(64, cores=256, threads=1, has_gpu=True)),
        ("mpi", [place._replace(has_horovod=False) for place in trainers(2, cores=4, threads=1, has_gpu=True)]),
        ("grid", [place._replace(has_horovod=False) for place in trainers(64, cores=4, threads=1, has_gpu=True)]),
    ],
)
def test_auto_goes_by_cores_and_by_the_number_of_trainers(chosen: str, found: list[TrainerCores]) -> None:
    """Horovod where its thread has a core with each trainer, whatever another host has; the grid for many trainers."""
    assert choose_dense_sums("auto", found).name == chosen


def test_the_reason_tells_the_cores() -> None:
    told = "train.dense_sums = auto: cores for each trainer: 1, for its threads: 1, and none for Horovod's"
    assert choose_dense_sums("auto", trainers(2, cores=2, threads=1)).reason == told


@pytest.mark.parametrize(
    ("setting", "found", "warned"),
    [
        ("horovod", trainers(3, cores=2, threads=1, grouped=True), True),
        ("horovod", [*trainers(1, cores=8, threads=1), *trainers(3, cores=2, threads=1, host=1, grouped=True)], True),
        ("horovod", trainers(2, cores=2, threads=1, grouped=True), False),
        ("horovod", trainers(3, cores=2, threads=1, grouped=True, has_gpu=True), False),
        ("horovod", trainers(3, cores=2, threads=1), False),
        ("horovod", [*trainers(3, cores=2, threads=1), *trainers(1, cores=2, threads=1, host=1, grouped=True)], False),
        ("horovod", trainers(1, cores=1, threads=4, grouped=True), False),
        ("mpi", trainers(3, cores=2, threads=1, grouped=True), False),
        ("grid", trainers(3, cores=2, threads=1, grouped=True), False),
        ("auto", trainers(3, cores=2, threads=1, grouped=True), False),
    ],
)
def test_horovod_among_more_trainers_than_cores_is_warned_of(
    setting: str, found: list[TrainerCores], *, warned: bool
) -> None:
    """Where Linux shares cores between sessions; a trainer that is alone has no thread of Horovod's."""
    choice = choose_dense_sums(setting, found)
    assert ("train.dense_sums=auto" in choice.warning) is warned
    assert bool(choice.warning) is warned


@pytest.mark.parametrize(
    ("setting", "found", "warned"),
    [
        ("horovod", trainers(64, cores=256, threads=1), True),
        ("horovod", trainers(63, cores=256, threads=1), False),
        ("horovod", trainers(64, cores=256, threads=1, has_gpu=True), False),
        ("mpi", trainers(64, cores=256, threads=1), False),
        ("grid", trainers(64, cores=256, threads=1), False),
        ("auto", trainers(64, cores=256, threads=1), False),
    ],
)
def test_horovod_among_many_trainers_is_warned_of(setting: str, found: list[TrainerCores], *, warned: bool) -> None:
    """By default Horovod sums, however many trainers there are."""
    warning = choose_dense_sums(setting, found).warning
    assert warning.startswith("64 trainers: sums by Horovod are predicted to make steps longer") is warned
    assert bool(warning) is warned
