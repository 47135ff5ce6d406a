"""What a policy says is what planners get: assignments, and rules of one's own, checked before a run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import NoSettings, SettingError
from bagpipe_hpc.config.schema import KernelsConfig, PolicyConfig
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.planning.batch_rows import LoadedBatch, RowChoice
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.plan_check import check_policy
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policy import Assignment, Policy, RunFacts, build_policy, keeps_order
from bagpipe_hpc.planning.rule_planner import RulePlanner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from tests.extending import Example

OFFSETS = np.asarray([0, 40, 100, 101])
BACKENDS = ["reference", *(["native"] if shared_library.is_built("planner") else [])]


def batches(seed: int, count: int = 12, samples: int = 9) -> list[NDArray[np.int64]]:
    """Skewed rows of three tables; the last batch has a single sample."""
    rng = np.random.default_rng(seed)
    found = [OFFSETS[:-1] + (np.diff(OFFSETS) * rng.random((samples, 3)) ** 3).astype(np.int64) for _ in range(count)]
    return [*found[:-1], found[-1][:1]]


def facts(trainers: int, **kernels: Any) -> RunFacts:
    return RunFacts(OFFSETS, trainers, batch_size=9, kernels=KernelsConfig(**kernels))


class Drawn(LookaheadPolicy):
    """Each sample goes to any trainer, in any order, drawn anew for each segment."""

    def assignment(self) -> Assignment:
        rng = np.random.default_rng(self.facts.seed)

        def share_out(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
            trainer = rng.integers(self.facts.trainers, size=len(rows))
            order = rng.permutation(len(rows))
            return [order[trainer[order] == number] for number in range(self.facts.trainers)]

        return share_out


class Choosing(Policy):
    """A policy whose rule is a function."""

    def __init__(self, run: RunFacts, choose: Callable[[LoadedBatch], RowChoice], window: Window) -> None:
        super().__init__(NoSettings(), run)
        self._choose, self._window = choose, window

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        return self._window

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:
        choose_rows = self._choose

        class ByFunction(RulePlanner):
            def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:  # noqa: ARG002
                return choose_rows(batch)

        return ByFunction(self.facts.total_rows, self.facts.trainers, window, shared, private)


def choice(batch: LoadedBatch, *, dead: bool, private: bool, now: bool) -> RowChoice:
    """The same for every row, but private only where it has a single user."""
    all_rows = np.ones(batch.unique.size, dtype=np.bool_)
    return RowChoice(dead & all_rows, private & (batch.user >= 0), now & all_rows)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from(BACKENDS), st.integers(1, 7))
def test_the_look_ahead_rules_hold_whoever_has_which_sample(
    seed: int, trainers: int, backend: str, length: int
) -> None:
    policy = Drawn(NoSettings(), facts(trainers, backend=backend))
    check_policy(policy, batches(seed), Window(length, max(1, length // 2)))


@pytest.mark.skipif(len(BACKENDS) < 2, reason="_planner.so is not built")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_both_planners_take_any_assignment(seed: int, trainers: int) -> None:
    encoded = []
    for backend in BACKENDS:
        policy = Drawn(NoSettings(), facts(trainers, backend=backend))
        plans = plan_segment(policy.planner(Window(4, 2)), batches(seed), policy.start_slicing())
        encoded.append([part.encode().tobytes() for plan in plans for part in (plan.shared, *plan.trainers)])
    assert encoded[0] == encoded[1]


def test_default_slices_are_not_in_the_plans() -> None:
    class AsEver(LookaheadPolicy):
        def assignment(self) -> Assignment:
            return lambda rows: np.array_split(np.arange(len(rows)), 2)

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
    assert need.total_rows == max(np.unique(rows).size for rows in batches(3))
    by_row = build_policy(PolicyConfig("by_row:ByRow"), facts(3))
    check_policy(by_row, batches(3))
    plans = plan_segment(by_row.planner(Window(2, 1)), batches(3), by_row.start_slicing())
    for rows, plan in zip(batches(3)[:-1], plans, strict=False):
        for trainer, part in enumerate(plan.trainers):
            assert part.samples is not None
            assert set(rows[part.samples, 0] % 3) <= {trainer}


SOUND = {
    "held by all": {"dead": True, "private": False, "now": True},
    "alone where possible": {"dead": True, "private": True, "now": True},
}
BROKEN = {
    "summed too late": (Window(1, 1), {"dead": True, "private": False, "now": False}, "end otherwise"),
    "fetched too early": (Window(3, 1), {"dead": True, "private": False, "now": True}, "still holds|end otherwise"),
    "private and kept": (Window(5, 1), {"dead": False, "private": True, "now": True}, "only dead rows may be private"),
    "never retired": (Window(5, 1), {"dead": False, "private": False, "now": True}, "still holds"),
}


@pytest.mark.parametrize("name", SOUND)
def test_rules_of_one_s_own(name: str) -> None:
    values = SOUND[name]
    check_policy(Choosing(facts(3), lambda batch: choice(batch, **values), Window(1, 1)), batches(5))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rules_are_noticed(name: str) -> None:
    window, values, what = BROKEN[name]
    with pytest.raises(PlanError, match=what):
        check_policy(Choosing(facts(3), lambda batch: choice(batch, **values), window), batches(5))


def test_a_policy_that_draws_anew_is_noticed() -> None:
    class Restless(Drawn):
        segments = 0

        def assignment(self) -> Assignment:
            type(self).segments += 1
            rng = np.random.default_rng(self.segments)
            return lambda rows: np.array_split(rng.permutation(len(rows)), 2)

    with pytest.raises(PlanError, match=r"the same batches give other plans|slots are used up: .* were measured"):
        check_policy(Restless(NoSettings(), facts(2)), batches(5))


def test_a_lost_sample_is_noticed() -> None:
    class Forgetful(LookaheadPolicy):
        def assignment(self) -> Assignment:
            return lambda rows: [np.arange(len(rows) - 1), np.arange(0)]

    with pytest.raises(PlanError, match="the policy gives no sample 8 of a batch of 9"):
        check_policy(Forgetful(NoSettings(), facts(2)), batches(5))


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(SettingError, match=r"policy\.name = 'builtins:object': must be a subclass of .*Policy"):
        build_policy(PolicyConfig("builtins:object"), facts(2))


class Fails(LookaheadPolicy):
    def __init__(self, *_: object) -> None:
        raise LookupError("no such thing")


def test_a_policy_that_fails_is_named() -> None:
    with pytest.raises(SettingError, match=r"Fails': cannot be made: LookupError: no such thing \(test_policy"):
        build_policy(PolicyConfig(f"{__name__}:Fails"), facts(2))


def test_who_orders_samples_is_known() -> None:
    assert keeps_order("bagpipe")
    assert not keeps_order("tests.end_to_end.policies:Interleaved")
