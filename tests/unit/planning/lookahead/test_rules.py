"""The planner's rules: executing its plans gives plain training's tables, whatever the trace, window and trainers."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.capacity import fit_window, measure_need
from bagpipe_hpc.planning.checking.executor import PlanExecutor, train_plainly
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import bags_of, drawn_lengths
from tests.unit.planning.lookahead import mutants

MUTANTS = (
    mutants.RetiresEarly,
    mutants.WrongWriter,
    mutants.PrivateWithoutDeadTest,
    mutants.NowFromTheBatchAfterNext,
    mutants.KeepsNothing,
)
RAGGED_MUTANTS = (mutants.CutsBagsByCount, mutants.UsersByCount, mutants.EachRowOfABagOnce)
"""Right where every bag has one row."""
SHARED_TABLE_MUTANTS = (mutants.EachFeatureForItself,)


@st.composite
def traces(draw: st.DrawFn) -> tuple[int, list[Bags]]:
    """Rows of all tables, and batches: uniform, heavily skewed, all the same, all different; a partial last.

    Features are one-hot or ragged.
    """
    features = draw(st.integers(1, 4))
    samples = draw(st.integers(1, 9))
    count = draw(st.integers(1, 30))
    kind = draw(st.sampled_from(["uniform", "skewed", "same", "different"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from([0, 1, 4]))
    shape = (count, samples, features, max(1, most))
    total = {"same": 3, "different": int(np.prod(shape))}.get(kind, draw(st.integers(1, 200)))
    if kind == "uniform":
        rows = rng.integers(0, total, shape)
    elif kind == "skewed":
        rows = np.minimum(rng.zipf(1.3, shape) - 1, total - 1)
    elif kind == "same":
        rows = np.ones(shape, dtype=np.int64)
    else:
        rows = rng.permutation(total).reshape(shape)
    batches = [bags_of(part, drawn_lengths(rng, samples, features, most)) for part in rows]
    batches[-1] = batches[-1].part(0, draw(st.integers(1, samples)))
    return total, batches


def one_hot(batches: np.ndarray) -> list[Bags]:
    """Batches of global rows `[n, F]`."""
    return list(map(Bags.one_hot, batches))


@st.composite
def windows(draw: st.DrawFn) -> Window:
    lookahead = draw(st.integers(1, 40))
    return Window(lookahead, draw(st.integers(1, max(1, lookahead - 1))))


def execute(
    total: int,
    batches: list[Bags],
    trainers: int,
    window: Window,
    *,
    eager: bool,
    planner_type: type[LookaheadPlanner] = LookaheadPlanner,
    spare_slots: int = 0,
) -> PlanExecutor:
    need = measure_need(partial(LookaheadPlanner, total, trainers), window, lambda: iter([batches]))
    shared, private = need.shared_rows + spare_slots, need.private_rows + spare_slots
    planner = planner_type(total, trainers, window, shared, private)
    executor = PlanExecutor(total, trainers, shared, private, eager=eager)
    executor.run(list(plan_segment(planner, batches)), batches)
    return executor


@settings(max_examples=share_of(80), deadline=None)
@given(traces(), windows(), st.integers(1, 5), st.booleans())
def test_plans_give_plain_trainings_tables(
    trace: tuple[int, list[Bags]], window: Window, trainers: int, eager: bool
) -> None:
    """Guarantee, conservation, disjointness and capacity: the executor raises if one of the last three is violated."""
    total, batches = trace
    executor = execute(total, batches, trainers, window, eager=eager)
    np.testing.assert_array_equal(executor.store, train_plainly(batches, total))
    assert executor.fetches == executor.write_backs


@settings(max_examples=share_of(50), deadline=None)
@given(traces(), windows(), st.integers(1, 4))
def test_reduce_lists_are_disjoint_and_complete(trace: tuple[int, list[Bags]], window: Window, trainers: int) -> None:
    total, batches = trace
    planner = LookaheadPlanner(total, trainers, window, total, total)
    for plan, rows in zip(plan_segment(planner, batches), batches, strict=False):
        lists = [plan.shared.now_slots, plan.shared.later_slots]
        own = [
            np.where(part.private_slots < total, part.private_slots, part.private_slots + total * trainer)
            for trainer, part in enumerate(plan.trainers)
        ]
        named = np.concatenate([*lists, *own])
        assert np.unique(named).size == named.size == np.unique(rows.values).size


@settings(max_examples=share_of(50), deadline=None)
@given(traces(), windows(), st.integers(1, 4))
def test_resident_rows_stay_within_the_windows_bound(
    trace: tuple[int, list[Bags]], window: Window, trainers: int
) -> None:
    """At most the unique rows of any L + C + 1 consecutive batches are resident on a trainer."""
    total, batches = trace
    span = window.lookahead + window.group + 1
    bound = max(np.unique(np.concatenate([b.values for b in batches[i : i + span]])).size for i in range(len(batches)))
    need = measure_need(partial(LookaheadPlanner, total, trainers), window, lambda: iter([batches]))
    assert need.shared_rows <= bound
    assert need.private_rows <= bound
    for eager in (True, False):
        assert execute(total, batches, trainers, window, eager=eager).most_resident <= bound


@settings(max_examples=share_of(40), deadline=None)
@given(traces(), windows(), st.integers(1, 3), st.data())
def test_a_small_cache_shortens_the_window(
    trace: tuple[int, list[Bags]], window: Window, trainers: int, data: st.DataObject
) -> None:
    total, batches = trace
    measure = partial(measure_need, partial(LookaheadPlanner, total, trainers))
    smallest = measure(Window(1, 1), lambda: iter([batches])).total_rows
    cache_rows = data.draw(st.integers(smallest, smallest + total))
    fitted = fit_window(measure, window, lambda: iter([batches]), cache_rows)
    assert fitted.total_rows <= cache_rows
    assert fitted.window.lookahead <= window.lookahead
    executor = execute(total, batches, trainers, fitted.window, eager=True)
    np.testing.assert_array_equal(executor.store, train_plainly(batches, total))


def test_several_segments_reuse_one_planner() -> None:
    rng = np.random.default_rng(5)
    segments = [one_hot(rng.integers(0, 60, (count, 6, 3))) for count in (7, 1, 12)]
    planner = LookaheadPlanner(60, 2, Window(5, 2), 60, 60)
    executor = PlanExecutor(60, 2, 60, 60, eager=True)
    for batches in segments:
        executor.run(list(plan_segment(planner, batches)), batches)
    expected = np.arange(60, dtype=np.int64)
    for batches in segments:
        expected = train_plainly(batches, 60, expected)
    np.testing.assert_array_equal(executor.store, expected)


def test_an_evaluation_writes_nothing_back() -> None:
    batches = one_hot(np.random.default_rng(3).integers(0, 50, (9, 4, 2)))
    planner = LookaheadPlanner(50, 2, Window(4, 2))
    plans = list(plan_segment(planner, batches, training=False))
    assert all(part.write_back_rows.size == 0 for plan in plans for part in plan.trainers)
    assert sum(plan.shared.fetch_rows.size for plan in plans) > 0


def test_more_lookahead_fetches_fewer_rows_and_needs_as_many_now() -> None:
    """The trend of BagPipe's figures, on a Zipf trace."""
    batches = one_hot(np.minimum(np.random.default_rng(1).zipf(1.2, (120, 32, 3)) - 1, 1999))
    fetched, now = [], []
    for window in (Window(2, 1), Window(8, 2), Window(40, 10)):
        plans = list(plan_segment(LookaheadPlanner(2000, 2, window), batches))
        fetched.append(sum(p.shared.fetch_rows.size + sum(t.fetch_rows.size for t in p.trainers) for p in plans))
        now.append(sum(p.shared.now_slots.size for p in plans))
    assert fetched[0] > fetched[1] > fetched[2]
    assert len(set(now)) == 1


def skewed_bags(seed: int, batches: int, longest: int) -> list[Bags]:
    """Batches of eight samples and three features, which share a table; one-hot where `longest` is 0."""
    rng = np.random.default_rng(seed)
    rows = np.minimum(rng.zipf(1.2, (batches, 8, 3, max(1, longest))) - 1, 299)
    return [bags_of(part, drawn_lengths(rng, 8, 3, longest)) for part in rows]


def is_sound(planner_type: type[LookaheadPlanner], batches: list[Bags], *, eager: bool) -> bool:
    """Whether a planner's plans can be carried out, and train as plain training does."""
    try:
        # Spare slots, so that a mutant is not merely caught by running out of them.
        executor = execute(300, batches, 2, Window(6, 2), eager=eager, planner_type=planner_type, spare_slots=2000)
    except PlanError:
        return False
    return np.array_equal(executor.store, train_plainly(batches, 300))


@pytest.mark.parametrize("longest", [0, 5])
@pytest.mark.parametrize("eager", [False, True])
def test_no_rule_is_broken(longest: int, eager: bool) -> None:
    """On the trace that tells broken ones."""
    assert is_sound(LookaheadPlanner, skewed_bags(7, 60, longest), eager=eager)


@pytest.mark.parametrize("mutant", [*MUTANTS, *RAGGED_MUTANTS, *SHARED_TABLE_MUTANTS])
def test_a_broken_rule_is_noticed(mutant: type[LookaheadPlanner]) -> None:
    """A mutant asks for something forbidden or gives other tables."""
    for longest in (0, 5):
        batches = skewed_bags(7, 60, longest)
        survives = longest == 0 and mutant in RAGGED_MUTANTS
        assert survives == all(is_sound(mutant, batches, eager=eager) for eager in (True, False))


def test_shared_tables_are_what_kills_their_mutants() -> None:
    """With a table a feature, a row of its own for each feature is right."""
    batches = [bags.plus(np.asarray([0, 300, 600])) for bags in skewed_bags(7, 20, 5)]
    for mutant in SHARED_TABLE_MUTANTS:
        found, sound = (
            list(plan_segment(planner(900, 2, Window(6, 2)), batches)) for planner in (mutant, LookaheadPlanner)
        )
        unique = [[plan.shared.unique_rows for plan in plans] for plans in (found, sound)]
        assert unique[0] == unique[1]
