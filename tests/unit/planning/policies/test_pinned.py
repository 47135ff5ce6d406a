"""Pinned rows stay until the segment ends, each is fetched once, and training is the plain one."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.errors import DataError, PlanError
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.batch_rows import Bools, LoadedBatch, RowChoice
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.pinned.policy import PinnedPlanner, PinnedPolicy
from bagpipe_hpc.planning.policies.pinned.settings import PinnedSettings
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.table_plan import write_plan
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import skewed_batches

TABLES = (40, 60)
NAMES = ("C1", "C2")
SHARINGS = ("replicated", "home")


def plan_file(path: Path, pinned: dict[str, list[int]]) -> Path:
    tables = [WholeTable(name, rows, 4, 20) for name, rows in zip(NAMES, TABLES, strict=True)]
    rows = {name: np.array(found, dtype=np.int64) for name, found in pinned.items()}
    with path.open("wb") as file:
        write_plan(file, "recshard", "ab" * 32, 1, tables, [0, 0], rows)
    return path


def made(path: Path, trainers: int, sharing: str) -> Policy:
    facts = RunFacts(np.asarray([0, 40, 100]), trainers, 9, sharing=sharing, table_names=NAMES)
    return build_policy(PolicyConfig("pinned", PinnedSettings(plan=str(path))), facts)


@settings(max_examples=share_of(30), deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.sampled_from(SHARINGS),
    st.sampled_from([(1, 1), (2, 1), (5, 2), (40, 10)]),
    st.lists(st.integers(0, 99), unique=True),
)
def test_it_trains_as_plain_training_does(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    trainers: int,
    sharing: str,
    window: tuple[int, int],
    pinned: list[int],
) -> None:
    of_tables = {"C1": [row for row in pinned if row < 40], "C2": [row - 40 for row in pinned if row >= 40]}
    path = plan_file(tmp_path_factory.mktemp("plans") / "plan.npz", of_tables)
    check_policy(made(path, trainers, sharing), skewed_batches(seed, TABLES), Window(*window))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_pinned_row_is_fetched_once_and_written_back_at_the_end(tmp_path: Path, sharing: str) -> None:
    pinned = [0, 3, 39, 40, 60]
    policy = made(plan_file(tmp_path / "plan.npz", {"C1": [3, 0, 39], "C2": [0, 20]}), 2, sharing)
    batches = skewed_batches(11, TABLES, count=20)
    *plans, closing = plan_segment(policy.planner(Window(3, 1)), batches)
    fetches = [(plan.shared.fetch_rows, *parts_of(plan, "fetch_rows")) for plan in plans]
    fetched = np.concatenate([part for of_batch in fetches for part in of_batch])
    written = np.concatenate([part for plan in plans for part in parts_of(plan, "write_back_rows")])
    used = np.unique(np.concatenate([rows.values for rows in batches]))
    for row in pinned:
        assert (fetched == row).sum() == (row in used)
        assert row not in written
    at_the_end = np.concatenate(parts_of(closing, "write_back_rows"))
    assert set(np.intersect1d(pinned, used).tolist()) <= set(at_the_end.tolist())
    assert (np.unique(fetched, return_counts=True)[1] > 1).any(), "others come again"


def parts_of(plan: Any, name: str) -> list[np.ndarray]:
    return [getattr(part, name) for part in plan.trainers]


def test_the_cache_has_a_slot_for_each_pinned_row(tmp_path: Path) -> None:
    path = plan_file(tmp_path / "plan.npz", {"C1": list(range(10)), "C2": [1]})
    expected = made(path, 2, "replicated").expected_slots(CacheSlots(20, 8))
    assert expected == CacheSlots(25 + 11, 10)
    assert made(path, 2, "home").expected_slots(CacheSlots(20, 8)).private == 10 + 11
    assert made(path, 2, "replicated").expected_slots(CacheSlots(80, 8)).shared == 100
    assert made(path, 2, "home").expected_slots(CacheSlots(20, 80)).private == 100


class OwnThoughPinned(PinnedPlanner):
    """A pinned row with a single user is that trainer's own."""

    def is_private(self, dead: Bools, batch: LoadedBatch) -> Bools:
        return super().is_private(dead | self._pinned[batch.unique], batch)


class SumsPinnedRowsLate(PinnedPlanner):
    """Pinned rows are summed behind the next batch, though it uses them."""

    def is_needed_now(self, batch: LoadedBatch, following: LoadedBatch | None, private: Bools) -> Bools:
        return super().is_needed_now(batch, following, private) & ~self._pinned[batch.unique]


class LosesPinnedRows(PinnedPlanner):
    """What is pinned is not written back when the segment ends."""

    def closing_plan(self) -> BatchPlan:
        resident = self.rows.resident
        self.rows.take_out(-1, None, resident[self._pinned[resident]])
        return super().closing_plan()


class LeavesWithTheWindow(PinnedPlanner):
    """Of a pinned row only every other stays; the rest have slots, and are fetched all the same."""

    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:
        choice = super().choose(number, batch, following)
        left = np.flatnonzero(self._pinned)
        left = left[self.rows.has(left) & ~self.rows.are_in(left, batch.unique)]
        self.rows.take_out(number, batch, left)
        return choice


MUTANTS = {
    OwnThoughPinned: "is private and does not leave",
    SumsPinnedRowsLate: "end otherwise than in plain training",
    LosesPinnedRows: "behind the closing plan trainer 0 still holds",
    LeavesWithTheWindow: "and still holds it",
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_noticed(tmp_path: Path, mutant: type[PinnedPlanner]) -> None:
    class Mutated(PinnedPolicy):
        @property
        def rule(self) -> Callable[..., Planner]:
            return partial(mutant, pinned=self.pinned)

    path = plan_file(tmp_path / "plan.npz", {"C1": [0, 1, 2, 3, 20], "C2": [0, 1, 2, 30]})
    facts = RunFacts(np.asarray([0, 40, 100]), 2, 9, table_names=NAMES)
    batches = skewed_batches(5, TABLES, count=20)
    check_policy(PinnedPolicy(PinnedSettings(plan=str(path)), facts), batches, Window(3, 1))
    with pytest.raises(PlanError, match=MUTANTS[mutant]):
        check_policy(Mutated(PinnedSettings(plan=str(path)), facts), batches, Window(3, 1))


def test_a_plan_must_be_named_and_fit(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"policy\.plan = '': none is named; name a file that `bagpipe place CONFIG"):
        PinnedPolicy(PinnedSettings(), RunFacts(np.asarray([0, 9]), 1, 9)).planner(Window(1, 1))
    with pytest.raises(SettingError, match=r"policy\.plan = '.*absent\.npz': is not there; name a file"):
        made(tmp_path / "absent.npz", 1, "home").planner(Window(1, 1))
    facts = RunFacts(np.asarray([0, 41, 100]), 1, 9, table_names=NAMES)
    path = plan_file(tmp_path / "plan.npz", {})
    policy = build_policy(PolicyConfig("pinned", PinnedSettings(plan=str(path))), facts)
    with pytest.raises(DataError, match="table 'C1' has 41 rows, and the plan has 40"):
        policy.planner(Window(1, 1))
