"""Rows with one home: plans train as plain training does, are what the rules say, and broken rules are found."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import CapacityError, PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.exchange import Exchange, ExchangeCounts, Kind
from bagpipe_hpc.plan.exchange_grid import EXCHANGES, Grid, choose_grid
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.checking.executor import PlanExecutor, train_plainly
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.lookahead import home_mutants
from tests.unit.planning.lookahead.rule_model import Rules
from tests.unit.planning.lookahead.test_against_model import TABLE_ROWS, as_set, rules

STEP = 7
"""Training steps done before the segment."""


def planned(
    model: Rules, kind: type[HomePlanner] = HomePlanner, **settings: Any
) -> tuple[HomePlanner, list[BatchPlan]]:
    """Plans with exactly the slots that they need."""
    window = Window(model.lookahead, model.group)
    measured = HomePlanner(TABLE_ROWS, model.trainers, window)
    list(plan_segment(measured, model.batches))
    size = measured.size()
    planner = kind(TABLE_ROWS, model.trainers, window, size.shared_slots, size.private_slots, **settings)
    return planner, list(plan_segment(planner, model.batches, first_step=STEP))


def carried_out(model: Rules, plans: Sequence[BatchPlan], planner: HomePlanner, *, eager: bool) -> np.ndarray:
    """The tables that simulated trainers end with."""
    size = planner.size()
    executor = PlanExecutor(TABLE_ROWS, model.trainers, size.shared_slots, size.private_slots, eager=eager)
    executor.run(plans, model.batches)
    return executor.store


def exchanges(plan: BatchPlan) -> list[Exchange]:
    found = [part.exchanged for part in plan.trainers]
    assert all(found)
    return [part for part in found if part]


grids = st.sampled_from(EXCHANGES[1:])
"""Rows travel directly, or over a grid."""


@settings(max_examples=share_of(80))
@given(rules(), grids)
def test_plans_train_as_plain_training_does(model: Rules, exchange: str) -> None:
    """Whether rows are fetched and copies sent as early or as late as the rules allow, and whichever way they go."""
    planner, plans = planned(model, grid=choose_grid(exchange, model.trainers).grid)
    wanted = train_plainly(model.batches, TABLE_ROWS)
    for eager in (True, False):
        np.testing.assert_array_equal(carried_out(model, plans, planner, eager=eager), wanted)


def slice_rows(model: Rules, x: int, trainer: int) -> set[int]:
    """The rows that a trainer's slice of a batch uses; none of a batch that there is not."""
    if x >= len(model.batches):
        return set()
    bounds = slice_bounds(model.batches[x].samples, model.trainers)
    return set(model.batches[x].part(bounds[trainer], bounds[trainer + 1]).values.tolist())


@settings(max_examples=share_of(50))
@given(rules())
def test_every_row_has_one_home_and_every_other_user_a_copy(model: Rules) -> None:
    """Homes fetch and write back; what is summed, sent and copied is what a loop over rows and trainers finds."""
    home: dict[int, int] = {}
    used = [set(batch.values.tolist()) for batch in model.batches]
    for x, plan in enumerate(planned(model, verify=True)[1][:-1]):
        for trainer, part in enumerate(plan.trainers):
            for row in part.fetch_rows.tolist():
                assert row not in home
                assert trainer in model.users(x, row)
                home[row] = trainer
        following = used[x + 1] if x + 1 < len(used) and model.lookahead > 1 else set()
        before = used[x - 1] if x > 0 and model.lookahead > 1 else set()
        shared = {row for row in used[x] if model.users(x, row) != {home[row]}}
        now = shared if model.lookahead == 1 else shared & following
        for trainer, (part, own) in enumerate(zip(plan.trainers, exchanges(plan), strict=True)):
            mine = slice_rows(model, x, trainer)
            away = [row for row in mine if home[row] != trainer]
            counts = own.counts
            of_slice = np.split(part.rows, np.cumsum(own.slice_parts(part.private_slots.size))[:-1])
            assert as_set(of_slice[0]) == {row for row in away if row in now}
            assert as_set(of_slice[1]) == {row for row in away if row not in now}
            assert as_set(of_slice[2]) == {row for row in mine & now if home[row] == trainer}
            assert as_set(of_slice[3]) == {row for row in (mine & shared) - now if home[row] == trainer}
            assert as_set(of_slice[4]) == {row for row in mine - shared if home[row] == trainer}
            assert counts.now_rows == sum(home[row] == trainer for row in now)
            assert own.summed_slots.size == sum(home[row] == trainer for row in shared)
            for other in range(model.trainers):
                from_other = [row for row in away if home[row] == other]
                assert counts.rest_from[other] == sum(row not in before for row in from_other)
                if x + 1 < len(used):
                    next_away = slice_rows(model, x + 1, trainer) & used[x] & following
                    assert counts.next_from[other] == sum(
                        home.get(row) == other for row in next_away if home.get(row) != trainer
                    )
        for part in plan.trainers:
            for row in part.write_back_rows.tolist():
                del home[row]


@settings(max_examples=share_of(40))
@given(rules())
def test_look_ups_reach_their_rows_with_the_right_versions(model: Rules) -> None:
    version = np.zeros(TABLE_ROWS, dtype=np.int64)
    for x, (rows, plan) in enumerate(zip(model.batches, planned(model, verify=True)[1], strict=False)):
        looked_up = [part.rows[part.positions] for part in plan.trainers]
        np.testing.assert_array_equal(np.concatenate(looked_up), rows.values)
        for part in plan.trainers:
            np.testing.assert_array_equal(part.versions, version[part.rows])
        version[rows.values] = STEP + x + 1


@settings(max_examples=share_of(30))
@given(rules())
def test_an_evaluation_sums_and_writes_nothing(model: Rules) -> None:
    planner = HomePlanner(TABLE_ROWS, model.trainers, Window(model.lookahead, model.group))
    for plan in plan_segment(planner, model.batches, training=False):
        assert not any(part.rows_written for part in plan.trainers)
        for part in plan.trainers:
            if own := part.exchanged:
                assert own.summed_slots.size == own.sum_places.size == own.counts.next_to.sum() == 0
                assert own.counts.rest_from.sum() == own.copy_slots.size


def test_homes_are_dealt_out() -> None:
    """Rows that all trainers use get a home each in turn, so no trainer keeps more than its share."""
    batch = Bags.one_hot(np.tile(np.arange(12), 4).reshape(-1, 1))
    planner = HomePlanner(12, 4, Window(1, 1))
    plan = next(iter(plan_segment(planner, [batch])))
    assert [part.fetch_rows.size for part in plan.trainers] == [3, 3, 3, 3]
    assert planner.size().private_slots == 3
    assert planner.size().shared_slots == 2 * 9


@pytest.mark.parametrize("exchange", EXCHANGES[1:])
@pytest.mark.parametrize("trainers", [1, 3, 4, 6, 64])
def test_counts_are_encoded(trainers: int, exchange: str) -> None:
    arrays = [np.arange(trainers) + 10 * number for number in range(8)]
    grid = choose_grid(exchange, trainers).grid
    of_each = 0 if grid.is_direct else grid.rows
    relayed = 100 + np.arange(4 * grid.columns * of_each).reshape(4, grid.columns, of_each)
    counts = ExchangeCounts(1, 2, 3, 4, grid.columns, *arrays, relayed)
    encoded = counts.encode()
    assert encoded.dtype == np.int32
    assert encoded.size == 5 + (8 if grid.is_direct else 12) * trainers
    decoded = ExchangeCounts.decode(encoded)
    assert (decoded.now_rows, decoded.own_now, decoded.rest_slot, decoded.next_slot) == (1, 2, 3, 4)
    for kind in Kind:
        flow = decoded.flow(kind)
        assert flow.grid == grid
        np.testing.assert_array_equal(flow.to, arrays[2 * kind])
        np.testing.assert_array_equal(flow.source, arrays[2 * kind + 1])
        np.testing.assert_array_equal(flow.relayed, relayed[kind])


@pytest.mark.parametrize("seed", range(6))
def test_where_slots_are_few_rows_are_fetched_later(seed: int) -> None:
    """The same rows to the same homes, with the fewest slots for which there are plans; tables end as they should."""
    skewed = np.random.default_rng(seed).random((40, 4, 3)) ** 2
    batches, window = list(map(Bags.one_hot, (300 * skewed).astype(np.int64))), Window(12, 3)
    measured = HomePlanner(300, 2, window)
    wide = list(plan_segment(measured, batches))
    size = measured.size()
    for held in range(size.private_slots):
        planner = HomePlanner(300, 2, window, size.shared_slots, held)
        try:
            plans = list(plan_segment(planner, batches))
        except CapacityError:
            continue
        break
    else:
        pytest.fail("all private slots were needed")
    wanted = train_plainly(batches, 300)
    for eager in (True, False):
        executor = PlanExecutor(300, 2, size.shared_slots, held, eager=eager)
        executor.run(plans, batches)
        np.testing.assert_array_equal(executor.store, wanted)
    waits = [plan.shared.prefetch_after for plan in plans[:-1]]
    usual = [plan.shared.prefetch_after for plan in wide[:-1]]
    assert waits == sorted(waits)
    assert waits != usual
    assert min(np.subtract(waits, usual)) >= 0
    for plan, other in zip(plans, wide, strict=True):
        for own, before in zip(plan.trainers, other.trainers, strict=True):
            np.testing.assert_array_equal(own.fetch_rows, before.fetch_rows)
            np.testing.assert_array_equal(own.positions, before.positions)


@pytest.mark.parametrize("mutant", home_mutants.MUTANTS)
def test_a_broken_rule_is_found(mutant: type[HomePlanner]) -> None:
    rng = np.random.default_rng(1)
    batches = [Bags.one_hot(rng.integers(0, TABLE_ROWS, (6, 3))) for _ in range(14)]
    trainers, grid = (4, Grid(2, 2)) if mutant is home_mutants.SendsByTrainer else (3, Grid.direct(3))
    model = Rules(batches, trainers, 4, 1)
    wanted = train_plainly(batches, TABLE_ROWS)
    found = []
    for eager in (True, False):
        try:
            planner, plans = planned(model, mutant, grid=grid)
            found.append(bool((carried_out(model, plans, planner, eager=eager) == wanted).all()))
        except PlanError:
            found.append(False)
    assert not all(found)
