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
            "2 of 3 trainers have no GPU of their own; with fewer trainers all would compute on GPUs",
        ),
    ],
    ids=["all have one", "none has one", "one has one"],
)
def test_auto_takes_gpus_only_where_every_trainer_has_one(have_gpus: list[bool], device: str, reason: str) -> None:
    assert choose_for_all(have_gpus) == (device, reason)
