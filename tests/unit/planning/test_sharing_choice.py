"""One way to share rows for all ranks: as set, or by what plans and trainers there are."""

import pytest

from bagpipe_hpc.planning.sharing_choice import choose_sharing

BOTH = ("replicated", "home")


@pytest.mark.parametrize("setting", ["home", "replicated"])
@pytest.mark.parametrize("on_gpus", [False, True])
def test_a_setting_is_taken(setting: str, on_gpus: bool) -> None:
    choice = choose_sharing(setting, BOTH, trainers=1, on_gpus=on_gpus)
    assert (choice.name, choice.reason) == (setting, f"cache.sharing = {setting}")


@pytest.mark.parametrize(
    ("chosen", "known", "trainers", "on_gpus", "reason"),
    [
        ("home", BOTH, 2, False, "2 trainers on CPUs"),
        ("home", BOTH, 64, False, "64 trainers on CPUs"),
        ("replicated", BOTH, 1, False, "there is one trainer"),
        ("replicated", BOTH, 2, True, "trainers compute on GPUs"),
        ("replicated", ("replicated",), 2, False, "the policy plans for nothing else"),
        ("home", ("home",), 1, True, "the policy plans for nothing else"),
    ],
)
def test_auto_is_home_for_several_trainers_on_cpus_that_get_such_plans(
    chosen: str, known: tuple[str, ...], trainers: int, on_gpus: bool, reason: str
) -> None:
    choice = choose_sharing("auto", known, trainers, on_gpus=on_gpus)
    assert choice.name == chosen
    assert choice.reason == f"cache.sharing = auto: {reason}"
    assert str(choice).startswith("rows live at ")
