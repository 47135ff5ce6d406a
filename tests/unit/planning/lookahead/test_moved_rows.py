"""Plans move as many rows as the rules say: for one to eight trainers, with rows replicated and with one home each."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan, GroupPlan, ReceivedPlan
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.simulation.batch_load import Hops, loads_of
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps
from tests.drawing import share_of
from tests.unit.planning.lookahead.moved_rows import HomeCounts, Moved, replicated_counts
from tests.unit.planning.lookahead.rule_model import Rules
from tests.unit.planning.lookahead.test_against_model import TABLE_ROWS, rules

TRAINERS = (1, 2, 4, 8)
PLANNERS = {"home": HomePlanner, "replicated": LookaheadPlanner}


def planned(model: Rules, sharing: str, **settings: Any) -> list[BatchPlan]:
    planner = PLANNERS[sharing](TABLE_ROWS, model.trainers, Window(model.lookahead, model.group), **settings)
    return list(plan_segment(planner, model.batches))


def stats_of(plan: BatchPlan) -> list[StepStats]:
    """What the trainers of a run would add up."""
    found = []
    for own in plan.trainers:
        found.append(StepStats())
        found[-1].count_plan(ReceivedPlan((GroupPlan(plan.shared, own),)))
    return found


def as_trainers_count(plan: BatchPlan) -> list[Moved]:
    """The same in the words of the rules."""
    found = []
    for stats in stats_of(plan):
        summed = stats.reduced_now + stats.reduced_later
        found.append(
            Moved(
                fetched=stats.rows_fetched,
                copied=stats.copied,
                sent_home=stats.sent_home,
                relayed=stats.relayed,
                summed=summed,
                updated=summed + stats.private,
                written=stats.rows_written_back,
            )
        )
    return found


def a_trace(trainers: int, lookahead: int) -> Rules:
    """Of batches of 24 samples, whose rows by chance are used by one trainer or by all."""
    rng = np.random.default_rng(trainers)
    batches = [Bags.one_hot((TABLE_ROWS * rng.random((24, 2)) ** 2).astype(np.int64)) for _ in range(12)]
    return Rules(batches, trainers, lookahead, max(1, lookahead // 4))


@pytest.mark.parametrize("lookahead", [1, 2, 5, 40])
@pytest.mark.parametrize("trainers", TRAINERS)
def test_with_homes(trainers: int, lookahead: int) -> None:
    model = a_trace(trainers, lookahead)
    assert [as_trainers_count(plan) for plan in planned(model, "home")] == HomeCounts(model).of_batches()


@settings(max_examples=share_of(60))
@given(rules())
def test_with_homes_on_any_trace(model: Rules) -> None:
    assert [as_trainers_count(plan) for plan in planned(model, "home")] == HomeCounts(model).of_batches()


@settings(max_examples=share_of(60))
@given(rules(), st.data())
def test_over_any_grid(model: Rules, data: st.DataObject) -> None:
    """Rows that trainers pass on are counted, and nothing else changes."""
    rows = data.draw(st.sampled_from([rows for rows in range(2, 9) if model.trainers % rows == 0] or [1]))
    grid = Grid(rows, model.trainers // rows)
    counts = HomeCounts(model, columns=0 if grid.is_direct else grid.columns).of_batches()
    assert [as_trainers_count(plan) for plan in planned(model, "home", grid=grid)] == counts


def of_all(moved: list[Moved]) -> tuple[list[Moved], int]:
    """Who of several trainers writes a row back is not counted."""
    return [Moved(**{**vars(own), "written": 0}) for own in moved], sum(own.written for own in moved)


@pytest.mark.parametrize("lookahead", [1, 2, 5, 40])
@pytest.mark.parametrize("trainers", TRAINERS)
def test_replicated(trainers: int, lookahead: int) -> None:
    model = a_trace(trainers, lookahead)
    found = [of_all(as_trainers_count(plan)) for plan in planned(model, "replicated")]
    assert found == [of_all(moved) for moved in replicated_counts(model)]


def rows_of(hops: Hops) -> int:
    return sum(hop.rows for hop in hops)


@pytest.mark.parametrize("trainers", TRAINERS)
def test_a_prediction_counts_the_busiest_trainer(trainers: int) -> None:
    """Rows that it sends or takes in, whichever is more; what all trainers send in all is what they take in."""
    model = a_trace(trainers, 5)
    plans = planned(model, "home")
    counts = HomeCounts(model)
    moved = counts.of_batches()
    before = [0] * trainers  # next copies for the batch, of which the plan before tells
    for load, plan, copies, of_batch in zip(loads_of(plans), plans, counts.copies, moved, strict=False):
        exchanged = [own for part in plan.trainers if (own := part.exchanged)]
        rest = [int(own.counts.rest_from.sum()) for own in exchanged]
        assert [sum(parts) for parts in zip(rest, before, strict=True)] == copies
        before = [int(own.counts.next_from.sum()) for own in exchanged]
        assert rows_of(load.rest_copies) == max(*rest, *(int(own.counts.rest_to.sum()) for own in exchanged))
        assert rows_of(load.next_copies) == max(*before, *(int(own.counts.next_to.sum()) for own in exchanged))
        assert load.fetched == max(own.fetched for own in of_batch)
        assert load.written_by_all == sum(own.written for own in of_batch)
        assert rows_of(load.now_home) + rows_of(load.later_home) >= max(own.sent_home for own in of_batch)


def test_the_counts_can_differ() -> None:
    """The model is not of the kind that agrees with anything: of another trace it says something else."""
    assert [as_trainers_count(plan) for plan in planned(a_trace(4, 5), "home")] != HomeCounts(
        a_trace(4, 4)
    ).of_batches()


@settings(max_examples=share_of(60))
@given(rules(), st.sampled_from(sorted(PLANNERS)))
def test_rows_that_come_and_go_are_those_in_the_caches(model: Rules, sharing: str) -> None:
    """What is counted equals the number of rows in a set that gets what plans fetch and loses what they write back."""
    held: set[int] = set()
    counted = 0
    for plan in planned(model, sharing):
        for part in (plan.shared, *plan.trainers):
            held |= set(part.fetch_rows.tolist())
        for own in plan.trainers:
            held -= set(own.write_back_rows.tolist())
        counted += TrainerSteps.of(stats_of(plan)).newly_resident() or 0
        assert counted == len(held)
    assert not held
