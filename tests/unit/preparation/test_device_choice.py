"""Trainers compute on GPUs all together or not at all, where `train.device = auto` leaves it to them."""

import pytest

from bagpipe_hpc.preparation.settling.device import choose_for_all


@pytest.mark.parametrize(
    ("have_gpus", "device", "reason"),
    [
        ([True, True], "cuda", "each has a GPU of its own"),
        ([False], "cpu", "torch sees no GPU"),
        (
            [True, False, False],
            "cpu",
            "2 of 3 trainers have no GPU of their own: 1, 2; GPUs are left idle",
        ),
        (
            [True] + [False] * 10,
            "cpu",
            "10 of 11 trainers have no GPU of their own: 1, 2, 3, 4, 5, 6, 7, 8, ...; GPUs are left idle",
        ),
    ],
    ids=["all have one", "none has one", "one has one", "many have none"],
)
def test_auto_takes_gpus_only_where_every_trainer_has_one(have_gpus: list[bool], device: str, reason: str) -> None:
    assert choose_for_all(have_gpus) == (device, reason)
