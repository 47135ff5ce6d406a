"""Plans say what the rules say, set by set, for any trace, window and number of trainers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import bags_of, drawn_lengths
from tests.unit.planning.lookahead.rule_model import Rules

TABLE_ROWS = 60


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    """Uniform or skewed traces, one-hot or ragged; the last batch may be smaller than the number of trainers.

    Of many trainers, rows are often used by eight and more.
    """
    lookahead = draw(st.integers(1, 7))
    trainers = draw(st.sampled_from([1, 2, 3, 4, 6, 11]))
    samples = draw(st.integers(1, 6) if trainers < 8 else st.integers(6, 22))
    features, most = draw(st.integers(1, 3)), draw(st.sampled_from([0, 1, 4]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    used_rows = draw(st.integers(1, TABLE_ROWS))
    skew = draw(st.sampled_from([1, 3]))
    shape = draw(st.integers(1, 14)), samples, features, max(1, most)
    rows = (used_rows * rng.random(shape) ** skew).astype(np.int64)
    batches = [bags_of(part, drawn_lengths(rng, samples, features, most)) for part in rows]
    batches[-1] = batches[-1].part(0, draw(st.integers(1, samples)))
    return Rules(batches, trainers, lookahead, draw(st.integers(1, max(1, lookahead - 1))))


def planned(model: Rules) -> list[BatchPlan]:
    planner = LookaheadPlanner(TABLE_ROWS, model.trainers, Window(model.lookahead, model.group), verify=True)
    return list(plan_segment(planner, model.batches))


def as_set(rows: np.ndarray) -> set[int]:
    """The rows of a list, in which none may be twice."""
    found = set(rows.tolist())
    assert len(found) == rows.size
    return found


@settings(max_examples=share_of(100))
@given(rules())
def test_reductions(model: Rules) -> None:
    for x, plan in enumerate(planned(model)[:-1]):
        now = plan.shared.now_slots.size
        assert as_set(plan.shared.rows[:now]) == model.now(x)
        assert as_set(plan.shared.rows[now:]) == model.later(x)
        for trainer, part in enumerate(plan.trainers):
            assert as_set(part.rows) == model.private(x, trainer)


@settings(max_examples=share_of(100))
@given(rules())
def test_fetches(model: Rules) -> None:
    """A private row is fetched by its user alone, every other row by all."""
    for x, plan in enumerate(planned(model)[:-1]):
        assert as_set(plan.shared.fetch_rows) == model.fetched(x) & model.shared(x)
        for trainer, part in enumerate(plan.trainers):
            assert as_set(part.fetch_rows) == model.fetched(x) & model.private(x, trainer)
        assert plan.shared.fetched_rows == len(model.fetched(x))
        assert plan.shared.unique_rows == len(model.uses(x, x + 1))


@settings(max_examples=share_of(100))
@given(rules())
def test_write_backs(model: Rules) -> None:
    """Every retired row once, by somebody; a private one by its user, whose cache alone has its update."""
    for x, plan in enumerate(planned(model)):
        retired = model.retired_with(x)
        written = np.concatenate([part.write_back_rows for part in plan.trainers])
        assert as_set(written) == set().union(*(model.dead(y) for y in retired))
        for trainer, part in enumerate(plan.trainers):
            assert as_set(part.write_back_rows) >= set().union(*(model.private(y, trainer) for y in retired))


@settings(max_examples=share_of(100))
@given(rules())
def test_look_ups_reach_their_rows(model: Rules) -> None:
    """Each trainer's positions, in its own list of rows, are its slice of the batch."""
    for rows, plan in zip(model.batches, planned(model), strict=False):
        looked_up = [np.concatenate((plan.shared.rows, part.rows))[part.positions] for part in plan.trainers]
        np.testing.assert_array_equal(np.concatenate(looked_up), rows.values)


@settings(max_examples=share_of(60))
@given(rules(), st.integers(0, 100))
def test_expected_versions_are_the_rows_last_steps(model: Rules, first_step: int) -> None:
    planner = LookaheadPlanner(TABLE_ROWS, model.trainers, Window(model.lookahead, model.group), verify=True)
    version = np.zeros(TABLE_ROWS, dtype=np.int64)
    plans = plan_segment(planner, model.batches, first_step=first_step)
    for x, (rows, plan) in enumerate(zip(model.batches, plans, strict=False)):
        for part in (plan.shared, *plan.trainers):
            np.testing.assert_array_equal(part.versions, version[part.rows])
        version[rows.values] = first_step + x + 1


def test_the_papers_rules_on_a_trace_by_hand() -> None:
    """Two trainers, L = 3, C = 2: so that planner and model are not wrong together."""
    model = Rules(
        [Bags.one_hot(np.asarray(batch).reshape(-1, 1)) for batch in ([1, 2], [1, 3], [4, 4], [2, 3])], 2, 3, 2
    )
    plans = planned(model)
    fetched = [
        (set(p.shared.fetch_rows.tolist()), *(set(part.fetch_rows.tolist()) for part in p.trainers)) for p in plans
    ]
    # Batch 0: row 1 comes back in batch 1; row 2 only in batch 3, outside the window, and trainer 1 alone uses it.
    # Batch 1: row 3 comes back in batch 3, just inside the window, so all hold it; row 1 is resident.
    # Batch 2: row 4 is dead, but both use it.
    # Batch 3: row 3 is resident; row 2 was retired.
    assert fetched == [({1}, set(), {2}), ({3}, set(), set()), ({4}, set(), set()), (set(), {2}, set()), (set(),) * 3]
    now_later = [
        (set(p.shared.rows[: p.shared.now_slots.size].tolist()), set(p.shared.rows[p.shared.now_slots.size :].tolist()))
        for p in plans
    ]
    assert now_later == [({1}, set()), (set(), {3}), (set(), {4}), (set(), set()), (set(), set())]
    private = [tuple(set(part.rows.tolist()) for part in p.trainers) for p in plans]
    assert private == [(set(), {2}), ({1}, set()), (set(), set()), ({2}, {3}), (set(), set())]
    written = [{row for part in p.trainers for row in part.write_back_rows.tolist()} for p in plans]
    assert written == [set(), set(), {1, 2}, set(), {2, 3, 4}]
    assert [p.shared.prefetch_after for p in plans[:-1]] == [0, 0, 0, 2]
