"""HET's rules: plans pull and push what a model in plain Python does, and no look-up misses more than the bound."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import CapacityError, DataError, PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.batch_rows import Bools, Int32s, Int64s
from bagpipe_hpc.planning.checking.executor import PlanExecutor
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.het.planner import HetPlanner
from bagpipe_hpc.planning.policies.het.policy import HetPolicy
from bagpipe_hpc.planning.policies.het.settings import EVICTIONS, HetSettings
from bagpipe_hpc.planning.policies.het.trainer_cache import Read, TrainerCache
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED, SlotPool
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import bags_of, drawn_lengths
from tests.unit.planning.policies.het.het_model import Het

ROWS = 40


def facts(trainers: int, samples: int, cache_rows: int = 0, total_rows: int = ROWS, features: int = 2) -> RunFacts:
    tables = (0,) * features
    return RunFacts(np.asarray([0, total_rows]), trainers, samples, feature_tables=tables, cache_rows=cache_rows)


def policy(run: RunFacts, **own: Any) -> HetPolicy:
    return HetPolicy(HetSettings(**own), run)


@st.composite
def traces(draw: st.DrawFn) -> tuple[list[Bags], HetPolicy]:
    """Uniform or skewed rows, one-hot or in bags; any bound, any cache and any way to empty it."""
    samples, most = draw(st.integers(1, 8)), draw(st.sampled_from([0, 3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    skew, used = draw(st.sampled_from([1, 3])), draw(st.integers(1, ROWS))
    shape = draw(st.integers(1, 14)), samples, 2, max(1, most)
    rows = (used * rng.random(shape) ** skew).astype(np.int64)
    batches = [bags_of(part, drawn_lengths(rng, samples, 2, most)) for part in rows]
    batches[-1] = batches[-1].part(0, draw(st.integers(1, samples)))
    trainers = draw(st.sampled_from([1, 2, 3, 5]))
    of_slice = 2 * 2 * -(-samples // trainers)
    run = facts(trainers, samples, draw(st.sampled_from([0, of_slice, of_slice + 6, 3 * of_slice])))
    bound, eviction = draw(st.sampled_from([0, 1, 2, 5])), draw(st.sampled_from(EVICTIONS))
    pin_after = {"pin_after": draw(st.integers(2, 4))} if eviction == "lfu_pinned" else {}
    return batches, policy(run, staleness=bound, eviction=eviction, **pin_after)


def slices_of(batch: Bags, trainers: int) -> list[list[int]]:
    return [batch.part(*bounds).values.tolist() for bounds in pairwise(slice_bounds(batch.samples, trainers))]


def planned(het: HetPolicy, batches: Sequence[Bags]) -> list[BatchPlan]:
    return list(plan_segment(het.planner(het.window(Window(20, 5))), batches))


def pulled(plan: BatchPlan) -> list[set[int]]:
    """The rows that each trainer pulls, none of them twice."""
    found = [set(part.fetch_rows.tolist()) for part in plan.trainers]
    assert [len(rows) for rows in found] == [part.fetch_rows.size for part in plan.trainers]
    return found


def added(plan: BatchPlan) -> list[set[int]]:
    """The rows that each trainer adds, none of them twice."""
    found = []
    for part in plan.trainers:
        assert part.add_rows is not None
        found.append(set(part.add_rows.tolist()))
        assert len(found[-1]) == part.add_rows.size
    return found


def model_of(het: HetPolicy) -> Het:
    own, run = het.settings, het.facts
    return Het(run.total_rows, run.trainers, own.staleness, own.eviction, het.most_held, own.pin_after)


@settings(max_examples=share_of(40), deadline=None)
@given(traces())
def test_no_look_up_misses_more_than_the_bound(trace: tuple[list[Bags], HetPolicy]) -> None:
    """Simulated trainers count the updates in each value that is read: none of their own is missing, of others' T s at
    most; with s = 0 tables end as in plain training, and else with all that was added, once each."""
    batches, het = trace
    check_policy(het, batches)


@settings(max_examples=share_of(40), deadline=None)
@given(traces())
def test_plans_pull_and_push_what_the_model_does(trace: tuple[list[Bags], HetPolicy]) -> None:
    """In every step; and pushed and unsent updates are those that were made."""
    batches, het = trace
    model, *plans = model_of(het), *planned(het, batches)
    made = 0
    for number, (batch, plan) in enumerate(zip(batches, plans, strict=False)):
        slices = slices_of(batch, het.facts.trainers)
        pulls, pushes = model.step(number, slices)
        assert pulled(plan) == pulls
        assert added(plan) == pushes
        made += sum(len(set(rows)) for rows in slices)
        assert sum(model.clocks) + sum(line.unsent for held in model.held for line in held.values()) == made
    assert added(plans[-1]) == model.end()
    assert sum(model.clocks) == made


@settings(max_examples=share_of(30), deadline=None)
@given(traces())
def test_the_clocks_are_those_of_the_model(trace: tuple[list[Bags], HetPolicy]) -> None:
    batches, het = trace
    model, planner = model_of(het), het.planner(Window(1, 1))
    assert isinstance(planner, HetPlanner)
    planner.start_segment(training=True, first_step=0)
    for number, batch in enumerate(batches):
        planner.load(batch)
        planner.plan(number)
        model.step(number, slices_of(batch, het.facts.trainers))
        for cache, held in zip(planner.caches, model.held, strict=True):
            lines = cache._lines
            rows = cache._row[lines].tolist()
            assert dict(zip(rows, cache._clock[lines].tolist(), strict=True)) == {
                row: line.clock for row, line in held.items()
            }
            assert set(cache._row[cache.unsent_lines()].tolist()) == {row for row, line in held.items() if line.unsent}


def test_a_model_with_s_0_trains_as_one_that_has_no_cache() -> None:
    rng = np.random.default_rng(3)
    batches = [[rng.integers(0, ROWS, 9).tolist() for _ in range(3)] for _ in range(20)]
    cached, values = Het(ROWS, 3, 0), list(range(ROWS))
    for number, slices in enumerate(batches):
        cached.step(number, slices)
        read = list(values)
        for rows in slices:
            for row in rows:
                values[row] += 1 + read[row] % 7
    assert cached.values == values


def test_a_row_that_is_being_added_is_not_looked_up() -> None:
    """A row that stays waits for the group with which its change was added, since that rewrites its slot."""
    batches = [Bags.one_hot(np.asarray([[5, 6], [7, 8]]))] * 2
    het, slots = policy(facts(2, 2), staleness=0), (0, 20)
    first, second, closing = plan_segment(het.planner(het.window(Window(20, 5)), *slots), batches)
    hasty = replace(second, shared=replace(second.shared, prefetch_after=0))
    PlanExecutor(ROWS, 2, *slots, eager=False, most_missing=0).run([first, second, closing], batches)
    with pytest.raises(PlanError, match="batch 1: trainer 0 looks row 5 up while its change is being added, with grou"):
        PlanExecutor(ROWS, 2, *slots, eager=False, most_missing=0).run([first, hasty, closing], batches)


@pytest.fixture(scope="module")
def traffic() -> dict[int, float]:
    """By the bound, pulls and pushes of eight trainers with Zipf 1.05, in proportion to those without a cache."""
    weights = 1 / np.arange(1, 2001) ** 1.05
    rng = np.random.default_rng(0)
    batches = [Bags.one_hot(part) for part in rng.choice(2000, (150, 128, 4), p=weights / weights.sum())]
    run = facts(8, 128, total_rows=2000, features=4)
    found = {}
    for bound in (0, 1, 5, 10, 100):
        *plans, _ = planned(policy(run, staleness=bound), batches)
        parts = [part for plan in plans for part in plan.trainers]
        moved = sum(part.fetch_rows.size + part.rows_written for part in parts)
        found[bound] = moved / (2 * sum(part.private_slots.size for part in parts))
    return found


def test_traffic_falls_with_the_bound(traffic: dict[int, float]) -> None:
    values = list(traffic.values())
    assert values == sorted(values, reverse=True)
    assert traffic[0] > 0.8
    assert traffic[100] < 0.35 * traffic[0]


def test_a_cache_of_few_rows_is_kept_to() -> None:
    rng = np.random.default_rng(5)
    batches = [Bags.one_hot((ROWS * rng.random((8, 2)) ** 2).astype(np.int64)) for _ in range(20)]
    for eviction in EVICTIONS:
        het = policy(facts(2, 8, cache_rows=30), staleness=3, eviction=eviction)
        assert het.most_held == 7
        assert check_policy(het, batches).total_rows <= 30


def test_slices_may_be_of_any_size_and_rows_have_two_slots() -> None:
    batch = Bags.one_hot(np.asarray([[1, 2], [3, 4], [5, 6], [7, 8]]))
    for private, most in ((12, 6), (13, 6), (11, 5), (6, 3)):
        planner = policy(facts(2, 4)).planner(Window(1, 1), 0, private)
        planner.start_segment(training=True, first_step=0)
        planner.load(batch, [0, 1, 4])
        if most < 6:
            with pytest.raises(CapacityError, match=rf"private \(trainer 1, pairs\) slots .*: {most} exist, 6 are"):
                planner.plan(0)
        else:
            assert [part.fetch_rows.tolist() for part in planner.plan(0).trainers] == [[1, 2], [3, 4, 5, 6, 7, 8]]


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_rows_leave_in_their_order(eviction: str) -> None:
    """As sorting one by one has it: many rows, in lines that have grown, with a few that are even."""
    rng = np.random.default_rng(7)
    rows, batches, pin_after = 3000, 9, 5
    cache = TrainerCache(rows, SlotPool("lines"), 0, eviction, pin_after)
    uses, last_use = [0] * rows, [-1] * rows
    for number in range(batches):
        used = np.flatnonzero(rng.random(rows) < 0.3)
        cache.read(number, used, np.zeros(rows, dtype=np.int32))
        for row in used.tolist():
            uses[row], last_use[row] = uses[row] + 1, number
    held = [row for row in range(rows) if uses[row] and not (eviction == "lfu_pinned" and uses[row] >= pin_after)]
    stay = sum(count > 0 for count in uses) - len(held)
    assert (stay > 0) == (eviction == "lfu_pinned")

    def order(row: int) -> tuple[int, ...]:
        return last_use[row] == batches - 1, uses[row] * (eviction != "lru"), last_use[row], row

    in_order = sorted(held, key=order)
    for most in (stay, stay + 1, stay + len(held) // 3, stay + len(held) // 2, stay + len(held) - 1):
        leaving = cache._row[cache.choose_leaving(batches - 1, most)]
        assert sorted(leaving.tolist()) == sorted(in_order[: stay + len(held) - most])
    assert cache.choose_leaving(batches - 1, stay + len(held)).size == 0


def test_rows_of_other_tables_are_refused() -> None:
    planner = policy(facts(2, 4)).planner(Window(1, 1))
    planner.start_segment(training=True, first_step=0)
    with pytest.raises(DataError, match="row 40 of sample 0, feature 1"):
        planner.load(Bags.one_hot(np.asarray([[3, ROWS], [1, 2]])))


@pytest.mark.parametrize(
    ("setting", "value", "cure"),
    [
        ("staleness", -1, "use 0 or more updates"),
        ("eviction", "fifo", "use one of lru, lfu"),
        ("pin_after", 1, "use 2"),
        ("pin_after", 3, "has no effect with eviction = 'lru': leave it out, or set policy.eviction to lfu_pinned"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting: str, value: object, cure: str) -> None:
    with pytest.raises(SettingError, match=rf"{setting} = {value!r}: {cure}"):
        HetSettings(**{setting: value})  # type: ignore[arg-type]


class NeverStale(TrainerCache):
    """What is held is taken for current."""

    def misses_too_much(self, clocks: Int32s, lines: Int32s) -> Bools:  # noqa: ARG002
        return np.zeros(lines.size, dtype=np.bool_)


class CountsItsOwnTwice(TrainerCache):
    """What a trainer adds counts for its clock as if others had added as much, and it had seen that."""

    def add(self, lines: NDArray[np.integer], clocks: Int32s) -> Int64s:
        self._clock[lines] += self._unsent[lines]
        return super().add(lines, clocks)


class SendsLate(TrainerCache):
    """One more update is kept than the bound allows."""

    def update(self, lines: Int32s) -> Int32s:
        self._unsent[lines] += 1
        return lines[self._unsent[lines] > self._bound + 1]


class LosesWhatLeaves(TrainerCache):
    """A row leaves with its updates."""

    def has_unsent(self, lines: NDArray[np.integer]) -> Bools:
        return np.zeros(lines.size, dtype=np.bool_)


class ForgetsItsChange(TrainerCache):
    """A row that is pulled anew is what the servers have."""

    def read(self, number: int, rows: Int64s, clocks: Int32s) -> Read:
        lines, is_new, is_stale = super().read(number, rows, clocks)
        return Read(lines, is_new | is_stale, np.zeros_like(is_stale))


class PullsAheadOfTheOthers(TrainerCache):
    """The clock after a pull is one that the servers reach later."""

    def read(self, number: int, rows: Int64s, clocks: Int32s) -> Read:
        found = super().read(number, rows, clocks)
        self._clock[found.lines[found.is_new]] += 1
        return found


MUTANTS = [NeverStale, CountsItsOwnTwice, SendsLate, LosesWhatLeaves, ForgetsItsChange, PullsAheadOfTheOthers]


def checked(mutant: type[TrainerCache], bound: int) -> None:
    class Caches(HetPlanner):
        cache_kind = mutant

    class Broken(HetPolicy):
        def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:
            run, own = self.facts, {"settings": self.settings, "most_held": self.most_held}
            return Caches(run.total_rows, run.trainers, window, shared, private, **own)

    rng = np.random.default_rng(1)
    batches = [Bags.one_hot((ROWS * rng.random((8, 2)) ** 2).astype(np.int64)) for _ in range(30)]
    run = replace(facts(2, 8), cache_rows=36)
    check_policy(Broken(HetSettings(staleness=bound), run), batches)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_of_het_is_found(mutant: type[TrainerCache]) -> None:
    """By a look-up that misses too much or by what is lost, with one of the bounds."""
    found = 0
    for bound in (0, 1, 2):
        checked(TrainerCache, bound)
        try:
            checked(mutant, bound)
        except PlanError:
            found += 1
    assert found
