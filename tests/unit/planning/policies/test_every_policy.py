"""What holds for every policy: it says what memory it takes, and its plans list rows by table, with their versions."""

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.config.schema import KernelsConfig, PolicyConfig
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import Slicing
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.herald.settings import HeraldSettings
from bagpipe_hpc.planning.policies.het.settings import HetSettings
from bagpipe_hpc.planning.policies.hotline.settings import HotlineSettings
from bagpipe_hpc.planning.policies.pinned.settings import PinnedSettings
from bagpipe_hpc.planning.policies.scratchpipe_settings import ScratchPipeSettings
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.table_plan import write_plan

ROWS = 400_000
REST_BYTES = 170_000
"""All that does not grow with the tables."""
FACTS = RunFacts(
    np.asarray([0, ROWS]), 3, 9, kernels=KernelsConfig(backend="reference"), feature_tables=(0, 0), table_names=("C1",)
)
AT_HOME = {"sharing": "home"}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.npz"
    with path.open("wb") as file:
        write_plan(file, "recshard", "ab" * 32, 1, [WholeTable("C1", ROWS, 4, 20)], [0], {"C1": np.arange(5)})
    return path


CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("none", None, {}),
    ("none", None, AT_HOME),
    ("bagpipe", None, {}),
    ("bagpipe", None, AT_HOME),
    ("fae", None, {}),
    ("slipstream", None, {}),
    ("hotline", HotlineSettings(hot_rows=9), {}),
    ("scratchpipe", ScratchPipeSettings(), {"cache_rows": 200}),
    ("herald", HeraldSettings(), AT_HOME),
    ("herald", HeraldSettings(), AT_HOME | {"cache_rows": 90}),
    ("herald", HeraldSettings(location_aware=False), AT_HOME | {"cache_rows": 90}),
    ("het", HetSettings(), {}),
    ("pinned", "plan", {}),
    ("pinned", "plan", AT_HOME),
    ("pinned", "plan", {"sharing": "tiered"}),
]
"""Names, own settings and facts."""


def made(config: PolicyConfig, run: RunFacts) -> tuple[Policy, Planner, Slicing]:
    """A policy and all that it has while a segment is planned."""
    policy = build_policy(config, run)
    return policy, policy.planner(policy.window(Window(4, 2))), policy.start_slicing()


def config_of(name: str, own: Any, plan: Path) -> PolicyConfig:
    if own is None:
        return PolicyConfig(name)
    return PolicyConfig(name, PinnedSettings(plan=str(plan)) if own == "plan" else own)


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize(("name", "own", "facts"), CASES)
def test_what_is_checked_before_a_planner_is_made_is_what_is_taken(
    name: str, own: Any, facts: dict[str, Any], verify: bool, plan: Path
) -> None:
    if name == "het" and verify:
        pytest.skip("rows that are added have no versions")
    config, run = config_of(name, own, plan), replace(FACTS, verify=verify, **facts)
    made(config, run)  # what it imports takes memory, too
    tracemalloc.start()
    try:
        policy, planner, _slicing = made(config, run)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    least = policy.least_bytes(planner.window, most_batches=0)
    assert abs(taken - least) < REST_BYTES, f"{taken / ROWS} bytes a row are taken, and {least / ROWS} were said"
    assert planner.size().state_bytes <= least


@pytest.mark.parametrize(("name", "own", "facts"), [case for case in CASES if case[0] != "het"])
def test_plans_follow_the_facts_of_the_run(name: str, own: Any, facts: dict[str, Any], plan: Path) -> None:
    """Rows come table by table and with versions, over a grid. `het` lists rows by number, and has no versions."""
    ends = np.asarray([0, 100, 200, 300, ROWS])
    run = replace(FACTS, feature_tables=(2, 0, 3, 0), table_offsets=ends, verify=True, **facts)
    run = replace(run, trainers=4, exchange="grid")
    if own == "plan":
        plan = plan.with_name("tables.npz")
        with plan.open("wb") as file:
            tables = [WholeTable(f"C{table}", rows, 4, 20) for table, rows in enumerate(np.diff(ends).tolist())]
            write_plan(file, "recshard", "ab" * 32, 1, tables, [0] * 4, {"C0": np.arange(5)})
        run = replace(run, table_names=("C0", "C1", "C2", "C3"))
    policy, planner, slicing = made(config_of(name, own, plan), run)
    assert policy.writes_apart
    rng = np.random.default_rng(5)
    batches = [Bags.one_hot(ends[[2, 0, 3, 0]] + rng.integers(0, 60, (9, 4))) for _ in range(4)]
    for found in plan_segment(planner, batches, slicing):
        for part in (found.shared, *found.trainers):
            tables = np.searchsorted(ends, part.fetch_rows, side="right")
            assert tables.tolist() == sorted(tables.tolist())
        summed = found.shared.now_slots.size + found.shared.later_slots.size
        assert found.shared.rows.size == found.shared.versions.size == summed
        assert all(part.exchanged is None or part.exchanged.counts.columns == 2 for part in found.trainers)
        assert all(part.rows.size == part.versions.size == part.own_slots.size for part in found.trainers)
        assert (
            not found.shared.batch
            or found.shared.is_closing
            or any(part.versions.any() for part in (found.shared, *found.trainers))
        )
