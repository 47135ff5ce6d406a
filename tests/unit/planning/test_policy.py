"""What a policy says is what planners get: assignments, and rules of one's own, checked before a run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import NoSettings, SettingError
from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.batch_rows import LoadedBatch, RowChoice
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policy import Assignment, Policy
from bagpipe_hpc.planning.policy_choice import build_policy, keeps_order, takes_lanes
from bagpipe_hpc.planning.rule_planner import RulePlanner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.end_to_end.added_changes import AddedChanges
from tests.extending import Example
from tests.unit.planning.policy_batches import batches, facts

BACKENDS = ["reference", *(["native"] if shared_library.is_built("planner") else [])]


def features() -> st.SearchStrategy[tuple[tuple[int, ...], int]]:
    """The table of each feature, and how many rows a bag has at most; 0 for one-hot features."""
    return st.tuples(st.sampled_from([(0, 1, 2), (1, 0, 1), (0, 0)]), st.sampled_from([0, 1, 4]))


class Drawn(LookaheadPolicy):
    """Each sample goes to any trainer, in any order, drawn anew for each segment."""

    def assignment(self) -> Assignment:
        rng = np.random.default_rng(self.facts.seed)

        def share_out(rows: Bags) -> list[NDArray[np.int64]]:
            trainer = rng.integers(self.facts.trainers, size=rows.samples)
            order = rng.permutation(rows.samples)
            return [order[trainer[order] == number] for number in range(self.facts.trainers)]

        return share_out


@settings(max_examples=share_of(25), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from(BACKENDS), st.integers(1, 7), features())
def test_the_look_ahead_rules_hold_whoever_has_which_sample(
    seed: int, trainers: int, backend: str, length: int, tables_most: tuple[tuple[int, ...], int]
) -> None:
    tables, most = tables_most
    policy = Drawn(NoSettings(), facts(trainers, tables, backend=backend))
    check_policy(policy, batches(seed, most=most, tables=tables), Window(length, max(1, length // 2)))


@pytest.mark.skipif(len(BACKENDS) < 2, reason="_planner.so is not built")
@settings(max_examples=share_of(20), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), features())
def test_both_planners_take_any_assignment(seed: int, trainers: int, tables_most: tuple[tuple[int, ...], int]) -> None:
    tables, most = tables_most
    encoded = []
    for backend in BACKENDS:
        policy = Drawn(NoSettings(), facts(trainers, tables, backend=backend))
        looked_up = batches(seed, most=most, tables=tables)
        plans = plan_segment(policy.planner(Window(4, 2)), looked_up, policy.start_slicing())
        encoded.append([part.encode().tobytes() for plan in plans for part in (plan.shared, *plan.trainers)])
    assert encoded[0] == encoded[1]


def test_default_slices_are_not_in_the_plans() -> None:
    class AsEver(LookaheadPolicy):
        def assignment(self) -> Assignment:
            return lambda rows: np.array_split(np.arange(rows.samples), 2)

    plain, policy = LookaheadPolicy(NoSettings(), facts(2)), AsEver(NoSettings(), facts(2))
    plans = [
        list(plan_segment(chosen.planner(Window(3, 1)), batches(1), slicing))
        for chosen, slicing in ((plain, None), (plain, plain.start_slicing()), (policy, policy.start_slicing()))
    ]
    encoded = [[part.encode().tobytes() for plan in found for part in plan.trainers] for found in plans]
    assert encoded[0] == encoded[1] == encoded[2]


def test_the_examples_of_the_page(example: Callable[[str], Example]) -> None:
    example("Policy")
    config = PolicyConfig("no_cache:NoCache")
    need = check_policy(build_policy(config, facts(2)), batches(3), Window(40, 10))
    assert need.window == Window(1, 1)
    assert need.total_rows == max(np.unique(rows.values).size for rows in batches(3))
    by_row = build_policy(PolicyConfig("by_row:ByRow"), facts(3))
    check_policy(by_row, batches(3))
    check_policy(by_row, batches(3, most=4))
    plans = plan_segment(by_row.planner(Window(2, 1)), batches(3), by_row.start_slicing())
    for rows, plan in zip(batches(3)[:-1], plans, strict=False):
        for trainer, part in enumerate(plan.trainers):
            assert part.samples is not None
            assert set(rows.take(part.samples).grid[:, 0] % 3) <= {trainer}  # type: ignore[index]


def test_a_lost_sample_is_noticed() -> None:
    class Forgetful(LookaheadPolicy):
        def assignment(self) -> Assignment:
            return lambda rows: [np.arange(rows.samples - 1), np.arange(0)]

    with pytest.raises(PlanError, match="the policy gives no sample 8 of a batch of 9"):
        check_policy(Forgetful(NoSettings(), facts(2)), batches(5))


def test_an_assignment_that_fails_is_named() -> None:
    class Fails(LookaheadPolicy):
        def assignment(self) -> Assignment:
            return lambda rows: [np.arange(rows.samples // 0)]

    with pytest.raises(SettingError, match=r"Fails': its assignment of a batch of 9 samples fails: ZeroDivision"):
        check_policy(Fails(NoSettings(), facts(2)), batches(5))


CHOICES: dict[str, tuple[Any, str]] = {
    "none": (None, "batch 0: choose gives None: return a RowChoice"),
    "short": (
        RowChoice(*[np.zeros(1, dtype=np.bool_)] * 3),
        r"dead of its RowChoice is bool \[1\]: give bool",
    ),
    "a list": (RowChoice([True], [False], [True]), "dead of its RowChoice is list: give bool"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_that_is_none_is_refused(name: str) -> None:
    choice, said = CHOICES[name]

    class Rule(RulePlanner):
        def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:  # noqa: ARG002
            found: RowChoice = choice
            return found

    class Own(Policy):
        def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:
            own = self.facts
            return Rule(own.total_rows, own.trainers, window, shared, private, feature_tables=own.feature_tables)

    with pytest.raises(PlanError, match=said):
        check_policy(Own(NoSettings(), facts(2)), batches(5))


def test_whoever_watches_rows_says_what_for() -> None:
    """Else a run would end at its first snapshot."""
    with pytest.raises(TypeError, match=r"Forgetful watches rows .* see and restore"):
        type("Forgetful", (LookaheadPolicy,), {"watched": classmethod(lambda *_: None)})


def test_what_is_asked_of_the_class_is_a_class_method() -> None:
    """A plain method would be called without an object, deep in the engine."""
    with pytest.raises(TypeError, match=r"Plain\.order must be a class method: write @classmethod over it"):
        type("Plain", (LookaheadPolicy,), {"order": lambda *_: None})


def test_a_promise_about_plans_is_not_inherited() -> None:
    assert LookaheadPolicy.writes_apart
    assert type("Same", (LookaheadPolicy,), {}).writes_apart
    other = type("Other", (LookaheadPolicy,), {"planner": lambda *_: None})
    assert (other.writes_apart, other.sharings) == (False, ("replicated",))
    with pytest.raises(TypeError, match="Promising adds rows"):
        type("Promising", (AddedChanges,), {"writes_apart": True})


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(SettingError, match=r"policy\.name = 'builtins:object': must be a subclass of .*Policy"):
        build_policy(PolicyConfig("builtins:object"), facts(2))


class Fails(LookaheadPolicy):
    def __init__(self, *_: object) -> None:
        raise LookupError("no such thing")


def test_a_policy_that_fails_is_named() -> None:
    with pytest.raises(SettingError, match=r"Fails': cannot be made: LookupError: no such thing \(test_policy"):
        build_policy(PolicyConfig(f"{__name__}:Fails"), facts(2))


@pytest.mark.parametrize(
    ("name", "trainers", "sharing"),
    [
        ("bagpipe", 1, "replicated"),
        ("bagpipe", 2, "home"),
        ("tests.end_to_end.added_changes:AddedChanges", 2, "replicated"),
    ],
)
def test_auto_shares_rows_in_a_way_that_the_policy_plans(name: str, trainers: int, sharing: str) -> None:
    policy = build_policy(PolicyConfig(name), replace(facts(trainers), sharing="auto"))
    assert policy.facts.sharing == sharing
    with pytest.raises(SettingError, match=r"cache\.sharing = 'home': .*AddedChanges' plans for 'replicated' alone"):
        build_policy(PolicyConfig("tests.end_to_end.added_changes:AddedChanges"), replace(facts(2), sharing="home"))


def test_who_orders_samples_is_known() -> None:
    assert keeps_order("bagpipe")
    assert not keeps_order("tests.end_to_end.policies:Interleaved")
    lanes = {name: takes_lanes(name) for name in ("bagpipe", "fae", "tests.end_to_end.policies:Interleaved")}
    assert list(lanes.values()) == [True, True, False]
