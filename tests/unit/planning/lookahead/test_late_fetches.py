"""Where slots are few, rows are fetched later: the same rows, lists and tables, in fewer slots."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import NoSettings
from bagpipe_hpc.config.schema import KernelsConfig
from bagpipe_hpc.errors import CapacityError, PlanError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.capacity import expected_need, measure_need
from bagpipe_hpc.planning.checking.executor import PlanExecutor, train_plainly
from bagpipe_hpc.planning.lookahead.native import NativePlanner
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.lookahead.test_native import (
    Run,
    assert_same_plans,
    native_planner,
    plans,
    reference,
    runs,
    teams,
)

ROWS, TRAINERS, WINDOW = 300, 2, Window(12, 3)


def drawn(seed: int, batches: int = 40, samples: int = 4) -> list[Bags]:
    skewed = np.random.default_rng(seed).random((batches, samples, 3)) ** 2
    return list(map(Bags.one_hot, (ROWS * skewed).astype(np.int64)))


def need_of(batches: Sequence[Bags], window: Window = WINDOW) -> tuple[int, int]:
    need = measure_need(partial(LookaheadPlanner, ROWS, TRAINERS), window, lambda: iter([batches]))
    return need.shared_rows, need.private_rows


def execute(found: list[BatchPlan], batches: Sequence[Bags], slots: tuple[int, int]) -> None:
    """Raises `PlanError` where the plans cannot be carried out with so many slots, or end in other tables."""
    for eager in (True, False):
        executor = PlanExecutor(ROWS, TRAINERS, *slots, eager=eager)
        executor.run(found, batches)
        if (executor.store != train_plainly(batches, ROWS)).any():
            raise PlanError("other tables")


def is_planned(batches: Sequence[Bags], slots: tuple[int, int], kind: type[LookaheadPlanner]) -> bool:
    """Whether so many slots suffice for a plan."""
    try:
        list(plan_segment(kind(ROWS, TRAINERS, WINDOW, *slots), batches))
    except CapacityError:
        return False
    return True


def fewest_shared(batches: Sequence[Bags], kind: type[LookaheadPlanner] = LookaheadPlanner) -> int:
    """The least shared slots that a plan is found for, with private ones in plenty."""
    shared, private = need_of(batches)
    return next(count for count in range(shared + 1) if is_planned(batches, (count, private), kind))


def fewest_private(batches: Sequence[Bags]) -> int:
    """The least private slots that a plan is found for, with shared ones in plenty."""
    shared, private = need_of(batches)
    return next(count for count in range(private + 1) if is_planned(batches, (shared, count), LookaheadPlanner))


@settings(max_examples=share_of(50), deadline=None)
@given(runs(), st.floats(0.3, 1), st.floats(0.3, 1), st.data())
def test_the_native_planner_fetches_as_late_as_the_reference(
    run: Run, shared_share: float, private_share: float, data: st.DataObject
) -> None:
    measured = reference(run)
    for _ in plans(measured, run):
        pass
    size = measured.size()
    shared = size.shared_slots if run.with_homes else int(size.shared_slots * shared_share)  # copies cannot wait
    slots = shared, int(size.private_slots * private_share)
    found: list[list[BatchPlan]] = []
    refused = []
    planners: tuple[Planner, ...] = native_planner(run, *slots, threads=data.draw(teams(run))), reference(run, *slots)
    for planner in planners:
        found.append([])
        try:
            for plan in plans(planner, run):
                found[-1].append(plan)
        except CapacityError as error:
            refused.append(str(error))
    assert_same_plans(*found)
    assert len(refused) in (0, 2)
    assert len(set(refused)) <= 1


@pytest.mark.parametrize("seed", range(8))
def test_plans_train_with_the_fewest_slots_that_a_plan_is_found_for(seed: int) -> None:
    batches = drawn(seed)
    full, least = need_of(batches), (fewest_shared(batches), fewest_private(batches))
    assert least[0] < full[0]
    assert least[1] < full[1]
    wide = list(plan_segment(LookaheadPlanner(ROWS, TRAINERS, WINDOW), batches))
    for slots in ((least[0], full[1]), (full[0], least[1])):
        found = list(plan_segment(LookaheadPlanner(ROWS, TRAINERS, WINDOW, *slots), batches))
        execute(found, batches, slots)
        for plan, usual in zip(found, wide, strict=True):
            assert plan.shared.prefetch_after >= usual.shared.prefetch_after
            np.testing.assert_array_equal(plan.shared.fetch_rows, usual.shared.fetch_rows)
            assert plan.shared.now_slots.size == usual.shared.now_slots.size
            for own, other in zip(plan.trainers, usual.trainers, strict=True):
                np.testing.assert_array_equal(own.positions, other.positions)
                np.testing.assert_array_equal(own.write_back_rows, other.write_back_rows)
        waits = [plan.shared.prefetch_after for plan in found[:-1]]
        assert waits == sorted(waits), "fetches go in the order of batches"


def test_with_the_slots_that_it_needs_nothing_is_late() -> None:
    batches = drawn(3)
    found = list(plan_segment(LookaheadPlanner(ROWS, TRAINERS, WINDOW, *need_of(batches)), batches))
    usual = list(plan_segment(LookaheadPlanner(ROWS, TRAINERS, WINDOW), batches))
    assert [plan.shared.prefetch_after for plan in found] == [plan.shared.prefetch_after for plan in usual]


def test_no_more_is_waited_for_than_is_needed() -> None:
    """Batches of rows of their own: with room for those of n batches, batch x waits for those of x - n, but no longer
    than the window does."""
    window = Window(9, 1)
    batches = [Bags.one_hot(np.array([[2 * b], [2 * b + 1]] * 2)) for b in range(20)]
    for held in range(3, 11):
        found = list(plan_segment(LookaheadPlanner(ROWS, TRAINERS, window, 2 * held, 0), batches))
        waits = [plan.shared.prefetch_after for plan in found[:-1]]
        # Rows of batch b leave with group b + 1.
        assert waits == [max(0, x - min(held, window.lookahead) + 1) for x in range(20)]


@pytest.mark.parametrize("window", [Window(1, 1), Window(2, 1), Window(5, 4), Window(12, 3)])
def test_the_latest_group_is_started_before_the_batch(window: Window) -> None:
    for batch in range(40):
        latest = window.latest_before_prefetch(batch)
        assert latest >= window.group_before_prefetch(batch)
        started = [window.group_started_by(before) for before in range(batch)]
        assert latest == 0 or latest in started


class SaysNothing(LookaheadPlanner):
    """Slots are taken early, and the plan does not say so."""

    def plan(self, number: int) -> BatchPlan:
        plan = super().plan(number)
        return replace(plan, shared=replace(plan.shared, prefetch_after=self.prefetch_after(number)))


class WaitsForEver(LookaheadPlanner):
    """A batch may wait for rows that leave after it."""

    def latest_prefetch_after(self, number: int) -> int:
        return super().latest_prefetch_after(number) + self.window.group


class FreesAll(LookaheadPlanner):
    """Every group is waited for that can be, as soon as one has to be."""

    def _free(self, group: int) -> None:
        late = group > self.prefetch_after(self._loaded_count - len(self._loaded) - 1)
        super()._free(group if not late else self.latest_prefetch_after(self._loaded_count - len(self._loaded) - 1))


@pytest.mark.parametrize("mutant", [SaysNothing, WaitsForEver, FreesAll])
def test_mutants_are_killed(mutant: type[LookaheadPlanner]) -> None:
    def is_killed(batches: Sequence[Bags]) -> bool:
        slots = fewest_shared(batches, mutant), need_of(batches)[1]
        found = list(plan_segment(mutant(ROWS, TRAINERS, WINDOW, *slots), batches))
        try:
            execute(found, batches, slots)
        except PlanError:
            return True
        sound = plan_segment(LookaheadPlanner(ROWS, TRAINERS, WINDOW, *slots), batches)
        return [plan.shared.now_slots.tobytes() for plan in found] != [
            plan.shared.now_slots.tobytes() for plan in sound
        ]

    assert any(is_killed(drawn(seed)) for seed in range(8))


@pytest.mark.skipif(not shared_library.is_built("planner"), reason="_planner.so is not built")
def test_an_evaluation_and_a_next_segment_start_anew() -> None:
    batches = drawn(5)
    slots = fewest_shared(batches), need_of(batches)[1]
    planners: list[Planner] = [
        LookaheadPlanner(ROWS, TRAINERS, WINDOW, *slots),
        NativePlanner(np.array([0, ROWS]), TRAINERS, WINDOW, *slots),
    ]
    found = []
    for planner in planners:
        first = list(plan_segment(planner, batches))
        evaluated = list(plan_segment(planner, batches, training=False))
        again = list(plan_segment(planner, batches))
        assert [plan.shared.prefetch_after for plan in again] == [plan.shared.prefetch_after for plan in first]
        assert [plan.shared.prefetch_after for plan in evaluated] == [plan.shared.prefetch_after for plan in first]
        found.append([*first, *evaluated, *again])
    assert_same_plans(*found)


@pytest.mark.parametrize("times", [3, 12, 64])
@pytest.mark.parametrize("is_native", [False, True])
def test_a_batch_with_many_more_copies_than_the_first_ones_goes_through(times: int, is_native: bool) -> None:
    """The cache is that of the beginning, and what is reserved for copies."""
    if is_native and not shared_library.is_built("planner"):
        pytest.skip("_planner.so is not built")
    own = [np.concatenate((np.arange(64), np.arange(64, 128)))[:, None] for _ in range(30)]
    for batch in own:
        batch[64] = 0  # one row that both trainers use, and so one copy
    crowded = np.tile(np.concatenate((np.arange(times), np.arange(times, 64)))[:, None], (2, 1))
    crowded[64 + times :] += 64
    batches = list(map(Bags.one_hot, [*own, crowded, *own[:10]]))
    kernels = KernelsConfig(backend="native" if is_native else "reference")
    facts = RunFacts(np.asarray([0, ROWS]), TRAINERS, 128, kernels=kernels, sharing="home")
    policy = LookaheadPolicy(NoSettings(), facts)
    measure = partial(measure_need, policy.planner)
    need = expected_need(measure, WINDOW, lambda: iter([batches[:30]]), lambda groups: [policy.expected_slots(*groups)])
    (slots,) = need.groups
    assert slots.shared - slots.reserved == 2 * 2
    planner = policy.planner(WINDOW, slots.shared, slots.private)
    execute(list(plan_segment(planner, batches)), batches, (slots.shared, slots.private))
    assert planner.size().shared_slots == 2 * times
    (doubled,) = need.in_memory().groups
    with pytest.raises(CapacityError, match="the shared slots are used up") if 2 * times > 8 else nullcontext():
        list(plan_segment(policy.planner(WINDOW, doubled.shared, doubled.private), batches))
