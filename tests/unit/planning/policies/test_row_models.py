"""Planners that there are in NumPy alone do what their rules say, row by row, in each batch."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.schema import KernelsConfig, PolicyConfig
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.batch_rows import Bools, LoadedBatch, RowChoice
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.fae.planner import WINDOW, HotBlockPlanner
from bagpipe_hpc.planning.policies.fae.policy import FaePolicy
from bagpipe_hpc.planning.policies.hotline.hot_rows import HotRows
from bagpipe_hpc.planning.policies.hotline.policy import Hotline
from bagpipe_hpc.planning.policies.hotline.settings import HotlineSettings
from bagpipe_hpc.planning.policies.pinned.policy import PinnedPolicy
from bagpipe_hpc.planning.policies.pinned.settings import PinnedSettings
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import skewed_batches
from tests.unit.planning.lookahead.test_native import assert_same_plans
from tests.unit.planning.policies.hot_samples import batches_of, drawn_samples, policy_of
from tests.unit.planning.policies.row_models import HotlineModel, Moves, PinnedRules, fae_moves, moves_of, users_of
from tests.unit.planning.policies.test_pinned import SHARINGS, TABLES, made, plan_file

OFFSETS = np.asarray([0, 40, 100])


def require_same(plans: Iterable[BatchPlan], models: Iterable[Moves]) -> None:
    """All moves of each plan are those of the model."""
    for number, (plan, wanted) in enumerate(zip(plans, models, strict=True)):
        assert moves_of(plan, wanted) == wanted, f"batch {number}"


def require_hotline(policy: Hotline, batches: list[Bags]) -> None:
    own, trainers = policy.settings, policy.facts.trainers
    model = HotlineModel(trainers, own.hot_rows, own.learning_batches, own.refresh_batches, own.decay)
    slicing = policy.start_slicing()
    wanted = [model.step(rows, users_of(rows, trainers, slicing(rows))) for rows in batches]
    *plans, closing = plan_segment(policy.planner(Window(1, 1)), batches, policy.start_slicing())
    require_same(plans, wanted)
    assert moves_of(closing, Moves()).written == model.held


def require_fae(policy: FaePolicy, samples: Bags) -> None:
    policy.facts = replace(policy.facts, verify=True)
    batches = batches_of(policy, samples)
    *plans, closing = plan_segment(policy.planner(WINDOW), batches)
    require_same(plans, fae_moves(batches, set(np.flatnonzero(policy._is_hot).tolist()), policy.facts.trainers))
    assert moves_of(closing, Moves()) == Moves()


@settings(max_examples=share_of(15), deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.builds(
        HotlineSettings,
        hot_rows=st.sampled_from([1, 10, 40, 100]),
        learning_batches=st.integers(1, 5),
        refresh_batches=st.sampled_from([0, 1, 3]),
        decay=st.sampled_from([0.0, 0.5, 1.0]),
    ),
)
def test_hotline_moves_rows_as_its_rules_say(seed: int, trainers: int, own: HotlineSettings) -> None:
    batches = skewed_batches(seed, TABLES, count=14)
    require_hotline(Hotline(own, RunFacts(OFFSETS, trainers, 9, verify=True)), batches)


@settings(max_examples=share_of(15), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 60), st.integers(1, 63), st.sampled_from([20, 50, 100]))
def test_fae_moves_rows_as_its_rules_say(
    tmp_path_factory: pytest.TempPathFactory, seed: int, trainers: int, count: int, budget: int, share: int
) -> None:
    samples = drawn_samples(seed, count)
    folder = tmp_path_factory.mktemp("profiles")
    require_fae(policy_of(folder, samples, budget, batch_size=7, trainers=trainers, share_percent=share), samples)


def pins_of(folder: Path, pinned: list[int]) -> Path:
    of_tables = {"C1": [row for row in pinned if row < 40], "C2": [row - 40 for row in pinned if row >= 40]}
    return plan_file(folder / "plan.npz", of_tables)


@settings(max_examples=share_of(15), deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.sampled_from([(1, 1), (2, 1), (5, 2), (40, 10)]),
    st.lists(st.integers(0, 99), unique=True),
)
def test_pinned_rows_move_as_its_rules_say(
    tmp_path_factory: pytest.TempPathFactory, seed: int, trainers: int, window: tuple[int, int], pinned: list[int]
) -> None:
    batches = skewed_batches(seed, TABLES)
    path = pins_of(tmp_path_factory.mktemp("plans"), pinned)
    facts = RunFacts(OFFSETS, trainers, 9, verify=True, table_names=("C1", "C2"))
    policy = build_policy(PolicyConfig("pinned", PinnedSettings(plan=str(path))), facts)
    plans = plan_segment(policy.planner(Window(*window)), batches)
    require_same(plans, PinnedRules(batches, trainers, *window, frozenset(pinned)).moves())


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("window", [(1, 1), (5, 2), (40, 10)])
def test_without_pins_plans_are_those_of_bagpipe(sharing: str, window: tuple[int, int], tmp_path: Path) -> None:
    """Byte for byte; so rows with one home, too, are planned by a rule that native code has a second time."""
    batches = skewed_batches(5, TABLES)
    pinned = made(pins_of(tmp_path, []), 3, sharing)
    facts = replace(pinned.facts, kernels=KernelsConfig(backend="reference"))
    bagpipe: Policy = build_policy(PolicyConfig("bagpipe"), facts)
    assert isinstance(bagpipe, LookaheadPolicy)
    found, wanted = (plan_segment(policy.planner(Window(*window)), batches) for policy in (pinned, bagpipe))
    assert_same_plans(found, wanted)


class NeverDecays(Hotline):
    """Rows that were hot once are so for long."""

    def start_learning(self) -> HotRows:
        return HotRows(self.facts.total_rows, self._most, replace(self.settings, decay=1.0))


class EndsBlocksEarly(FaePolicy):
    """Hot rows are written back behind each hot batch, and fetched anew by the next."""

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:  # noqa: ARG002
        class Early(HotBlockPlanner):
            def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:  # noqa: ARG002
                return super().choose(number, batch, None)

        return Early(self._is_hot, self.facts.trainers, shared, private, verify=True)


class PinsOneLess(PinnedPolicy):
    """A pinned row leaves with the window."""

    @property
    def pinned(self) -> Bools:  # type: ignore[override]
        found = super().pinned.copy()
        found[np.flatnonzero(found)[0]] = False
        return found


def test_rules_that_train_right_and_move_other_rows_are_noticed(tmp_path: Path) -> None:
    """What `check_policy` cannot see: these end in the same tables."""
    batches = skewed_batches(2, TABLES, count=20)
    own = HotlineSettings(hot_rows=10, learning_batches=2, refresh_batches=2, decay=0.0)
    run = RunFacts(OFFSETS, 2, 9, verify=True, table_names=("C1", "C2"))
    check_policy(NeverDecays(own, run), batches)
    with pytest.raises(AssertionError, match="batch"):
        require_hotline(NeverDecays(own, run), batches)

    samples = drawn_samples(5, 200)
    sound = policy_of(tmp_path, samples, 20, batch_size=8)
    check_policy(early := EndsBlocksEarly(sound.settings, sound.facts), batches_of(sound, samples))
    with pytest.raises(AssertionError, match="batch"):
        require_fae(early, samples)

    pinned = [0, 3, 50]
    less = PinsOneLess(PinnedSettings(plan=str(pins_of(tmp_path, pinned))), run)
    check_policy(less, batches, Window(3, 1))
    with pytest.raises(AssertionError, match="batch"):
        require_same(
            plan_segment(less.planner(Window(3, 1)), batches),
            PinnedRules(batches, 2, 3, 1, frozenset(pinned)).moves(),
        )
