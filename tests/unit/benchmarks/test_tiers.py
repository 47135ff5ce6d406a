"""Rows of each tier are counted where they go."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from benchmarks.tiers import counted_in
from tests.unit.planning.drawn_bags import skewed_batches
from tests.unit.planning.tiered_plans import TABLES, made, plan_file


@pytest.mark.parametrize("tier", ["everywhere", "hosted", "one home"])
def test_each_tier_sends_its_own_way(tmp_path: Path, tier: str) -> None:
    rows = {"everywhere": (list(range(100)), []), "hosted": ([], list(range(100))), "one home": ([], [])}[tier]
    policy, batches = made(plan_file(tmp_path / "plan.npz", 2, *rows), 4), skewed_batches(3, TABLES)
    plans = list(plan_segment(policy.planner(Window(3, 1)), batches))
    unique = np.mean([plan.shared.unique_rows for plan in plans[:-1]])
    found = counted_in(plans, 2)
    assert found.within > 0
    if tier == "everywhere":
        expected = 2 * unique / 4 * np.array([1, 2])  # to one trainer here and to two elsewhere
        np.testing.assert_allclose([found.within, found.between], expected)
    if tier == "hosted":
        assert found.between == pytest.approx(unique / 2), "once on and once back, by four trainers"
