"""What the policy `pinned` says of rows in tiers, and which plans it refuses."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.errors import CapacityError, DataError
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.planning.window import Window
from tests.unit.planning.tiered_plans import EVERYWHERE, HOSTED, made, plan_file


def test_the_cache_has_slots_for_rows_that_several_hold(tmp_path: Path) -> None:
    """One of each trainer for a row of tier A, one of each host for a row of tier B; a spare part of the others'."""
    policy = made(plan_file(tmp_path / "plan.npz", 2, EVERYWHERE, HOSTED), 4)
    assert policy.expected_slots(CacheSlots(20, 6 + 8)).private == 6 + 10
    assert policy.expected_slots(CacheSlots(20, 6 + 80)).private == 100


def test_a_plan_for_other_hosts_or_another_sharing_is_refused(tmp_path: Path) -> None:
    path = plan_file(tmp_path / "plan.npz", 2, EVERYWHERE, HOSTED)
    for sharing in ("home", "replicated"):
        cure = rf"cache\.sharing = '{sharing}': .*plan.npz holds 5 rows once a host; use tiered, or place with"
        with pytest.raises(SettingError, match=cure):
            made(path, 2, sharing).planner(Window(1, 1))
    with pytest.raises(
        SettingError,
        match=r"policy\.plan = .*: is for 2 hosts .*, and there are 3 trainers in all; start a multiple of 2",
    ):
        made(path, 3).planner(Window(1, 1))
    with pytest.raises(CapacityError, match="the private slots are used up: 5 exist, 6 are needed"):
        made(path, 4).planner(Window(1, 1), 10, 5)
    with pytest.raises(SettingError, match=r"cache\.sharing = 'tiered': policy\.name = 'bagpipe' plans for"):
        build_policy(PolicyConfig("bagpipe"), RunFacts(np.asarray([0, 9]), 2, 9, sharing="tiered"))


def test_hosts_are_told_where_rows_are_held_once_a_host(tmp_path: Path) -> None:
    assert made(plan_file(tmp_path / "plan.npz", 2, EVERYWHERE, HOSTED), 4).trainers_of_host == 2
    assert made(plan_file(tmp_path / "none.npz", 2, EVERYWHERE, []), 4).trainers_of_host == 0
    assert made(plan_file(tmp_path / "none.npz", 2, EVERYWHERE, []), 4, "home").trainers_of_host == 0


def test_a_plan_that_names_a_row_in_two_tiers_is_refused(tmp_path: Path) -> None:
    policy = made(plan_file(tmp_path / "plan.npz", 2, [3], [5, 3]), 4)
    with pytest.raises(DataError, match="pins rows of table 'C1' that it does not have, or twice"):
        policy.planner(Window(1, 1))
