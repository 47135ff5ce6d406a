"""Herald's rules: who holds what, who gets which sample, and plans that train as plain training does."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan, GroupPlan, ReceivedPlan
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.batch_rows import Bools, RetiredByGroup, RetiredRows
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.homes.slots import Placed, UsedBatch
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.herald.assignment import ByLocation, by_score
from bagpipe_hpc.planning.policies.herald.held_rows import NOBODY, HeldRows
from bagpipe_hpc.planning.policies.herald.planner import HeraldPlanner
from bagpipe_hpc.planning.policies.herald.policy import HeraldPolicy
from bagpipe_hpc.planning.policies.herald.settings import HeraldSettings
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.telemetry.step_stats import StepStats
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import bags_of, drawn_lengths
from tests.unit.planning.policies.herald.herald_model import Caches, shared_out, users_of

ROWS = 60
WANTED = Window(20, 5)


def facts(trainers: int, samples: int = 8, cache_rows: int = 0, total_rows: int = ROWS, features: int = 3) -> RunFacts:
    return RunFacts(
        np.asarray([0, total_rows]),
        trainers,
        batch_size=samples,
        feature_tables=(0,) * features,
        sharing="home",
        cache_rows=cache_rows,
    )


def policy(run: RunFacts, **own: Any) -> HeraldPolicy:
    return HeraldPolicy(HeraldSettings(**own), run)


@st.composite
def traces(draw: st.DrawFn) -> tuple[list[Bags], RunFacts]:
    """Uniform or skewed rows, one-hot or in bags; any number of trainers; any cache, or one for a few rows more."""
    samples, most = draw(st.integers(1, 9)), draw(st.sampled_from([0, 1, 4]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    skew, used = draw(st.sampled_from([1, 3])), draw(st.integers(1, ROWS))
    shape = draw(st.integers(1, 12)), samples, 3, max(1, most)
    rows = (used * rng.random(shape) ** skew).astype(np.int64)
    batches = [bags_of(part, drawn_lengths(rng, samples, 3, most)) for part in rows]
    batches[-1] = batches[-1].part(0, draw(st.integers(1, samples)))
    trainers = draw(st.sampled_from([1, 2, 3, 4]))
    slice_look_ups = 3 * -(-samples // trainers)
    cache_rows = draw(st.sampled_from([0, slice_look_ups + 1, slice_look_ups + 4, 2 * slice_look_ups]))
    return batches, facts(trainers, samples, cache_rows)


@settings(max_examples=share_of(30), deadline=None)
@given(traces(), st.booleans(), st.booleans(), st.sampled_from([0, 2]), st.sampled_from([1, 2, 20]))
def test_plans_train_as_plain_training_does(
    trace: tuple[list[Bags], RunFacts], location_aware: bool, on_demand: bool, telling: int, lookahead: int
) -> None:
    batches, run = trace
    counted = telling if location_aware else 0
    chosen = policy(run, location_aware=location_aware, on_demand=on_demand, telling_features=counted)
    check_policy(chosen, batches, Window(lookahead, 1))


@settings(max_examples=share_of(40), deadline=None)
@given(traces(), st.integers(0, 2))
def test_snapshots_are_the_planners_caches_and_the_models(trace: tuple[list[Bags], RunFacts], telling: int) -> None:
    """Key for key in every step; samples go where the model says, as many to each trainer as its slice would have."""
    batches, run = trace
    herald = policy(run, telling_features=telling)
    planner = herald.planner(herald.window(WANTED))
    assert isinstance(planner, HeraldPlanner)
    assignment = herald.assignment()
    assert isinstance(assignment, ByLocation)
    caches = Caches(run.trainers, herald.most_held)
    slicing = herald.start_slicing()
    planner.start_segment(training=True, first_step=0)
    every_row = np.arange(ROWS)
    for number, batch in enumerate(batches):
        expected = shared_out(caches, batch, number, range(telling or 3))
        assert [own.tolist() for own in assignment(batch)] == expected
        assert [len(own) for own in expected] == np.diff(slice_bounds(batch.samples, run.trainers)).tolist()
        slices = slicing(batch)
        planner.load(slices.arranged(batch), slices.bounds)
        if number:
            planner.plan(number - 1)
        caches.take(users_of(batch, expected))
        holders = [NOBODY if (holder := caches.holder(row)) is None else holder for row in range(ROWS)]
        assert assignment.held.holders(every_row).tolist() == holders
        if number:  # where rows live, once those that leave for this batch have left, and before it fetches any
            resident = planner.rows.resident
            np.testing.assert_array_equal(planner.rows.where(resident)[1], np.asarray(holders)[resident])
            assert planner.held.holders(every_row).tolist() == holders


def test_rows_of_large_tables_are_told_apart() -> None:
    """Numbers of 32 bits, as planners have them, and pairs with trainers that take more."""
    rows, trainers = 1 << 22, 1000
    held = HeldRows(rows, trainers)
    used = np.arange(rows - 3, rows, dtype=np.int32)
    held.take(used, np.asarray([5, 999, 0]))
    assert held.holders(used).tolist() == [5, 999, 0]


def test_queues_do_not_grow_with_the_segment() -> None:
    """Rows that stay are used again and again, by one trainer after the other."""
    held = HeldRows(5000, 3, most=4000)
    rows = np.arange(500)
    for number in range(300):
        held.take(rows, np.full(500, number // 3 % 3))
    queues = held._queues
    assert sum(batch_rows.size for queue in queues for _, batch_rows in queue) < 3 * 3000
    assert sum(len(queue) for queue in queues) < 40


def counted(plans: Sequence[BatchPlan]) -> tuple[int, int]:
    """Pulls and pushes: copies and fetches; gradients sent and write-backs. The closing plan does not count."""
    stats = StepStats()
    for plan in plans[:-1]:
        for own in plan.trainers:
            stats.count_plan(ReceivedPlan((GroupPlan(plan.shared, own),)))
    return stats.copied + stats.rows_fetched, stats.sent_home + stats.rows_written_back


@settings(max_examples=share_of(40), deadline=None)
@given(traces())
def test_what_moves_is_what_the_model_moves(trace: tuple[list[Bags], RunFacts]) -> None:
    batches, run = trace
    herald = policy(run, location_aware=False)
    plans = list(plan_segment(herald.planner(herald.window(WANTED)), batches))
    caches, pulls, pushes = Caches(run.trainers, herald.most_held), 0, 0
    for batch in batches:
        bounds = slice_bounds(batch.samples, run.trainers)
        samples = [list(range(*bounds[t : t + 2])) for t in range(run.trainers)]
        users, before = users_of(batch, samples), [set(held) for held in caches.held]
        pushes += len(caches.take(users)) + sum(len(using) - 1 for using in users.values())
        pulls += sum(row not in before[user] for row, using in users.items() for user in using)
    pushes += len({row for held in caches.held for row in held} & set(users))  # behind the last batch
    assert counted(plans) == (pulls, pushes)


@pytest.fixture(scope="module")
def skewed() -> list[Bags]:
    """Zipf with exponent 1.05 over 2,000 rows of each of four features; 64 samples a batch."""
    weights = 1 / np.arange(1, 2001) ** 1.05
    rng = np.random.default_rng(0)
    rows = rng.choice(2000, (60, 64, 4), p=weights / weights.sum())
    return [Bags.one_hot(part + 2000 * np.arange(4)) for part in rows]


@pytest.fixture(scope="module")
def moved(skewed: list[Bags]) -> dict[tuple[bool, bool], tuple[int, int]]:
    """Pulls and pushes with four trainers, by whether synchronisation is on demand and samples go by location."""
    run = facts(4, 64, cache_rows=400, total_rows=8000, features=4)
    found = {}
    for on_demand in (False, True):
        for location_aware in (False, True):
            herald = policy(run, on_demand=on_demand, location_aware=location_aware)
            plans = plan_segment(herald.planner(herald.window(WANTED)), skewed, herald.start_slicing())
            found[on_demand, location_aware] = counted(list(plans))
    return found


def test_ablations_are_in_the_published_order(moved: dict[tuple[bool, bool], tuple[int, int]]) -> None:
    """On demand leaves pulls as they are; location cuts pulls mainly; both together cut pushes most."""
    (pulls, pushes), (near_pulls, near_pushes) = moved[False, False], moved[False, True]
    (lazy_pulls, lazy_pushes), (both_pulls, both_pushes) = moved[True, False], moved[True, True]
    assert lazy_pulls == pulls
    assert both_pulls == near_pulls < 0.9 * pulls
    assert lazy_pushes < 0.85 * pushes
    assert 0.9 * pushes < near_pushes <= pushes
    assert both_pushes < 0.9 * lazy_pushes


def test_the_telling_features_are_those_of_the_largest_tables() -> None:
    run = replace(facts(4, 64, total_rows=8000, features=4), table_offsets=np.asarray([0, 100, 2000, 4000, 8000]))
    run = replace(run, feature_tables=(1, 0, 3, 2))
    chosen = policy(run, telling_features=2).telling_features
    assert chosen is not None
    assert chosen.tolist() == [2, 3]
    assert policy(run, telling_features=4).telling_features is None


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 30), st.integers(0, 9))
def test_samples_are_given_one_after_the_other(seed: int, trainers: int, samples: int, number: int) -> None:
    """As a loop over samples gives them."""
    scores = np.random.default_rng(seed).integers(0, 4, (samples, trainers))
    room, expected = np.diff(slice_bounds(samples, trainers)), []
    for of_sample in scores:
        order = [(number + step) % trainers for step in range(trainers)]
        expected.append(max((t for t in order if room[t]), key=lambda t: of_sample[t]))
        room[expected[-1]] -= 1
    assert by_score(scores, number).tolist() == expected


def test_a_cache_of_few_rows_is_kept_to(skewed: list[Bags]) -> None:
    """What plans need is no more than `cache.rows`, and rows leave although several trainers have just trained them."""
    run = facts(4, 64, cache_rows=200, total_rows=8000, features=4)
    herald = policy(run)
    need = check_policy(herald, skewed[:12])
    assert need.window == Window(2, 1, serial=True)
    assert need.total_rows <= 200
    plans = plan_segment(herald.planner(need.window), skewed[:12], herald.start_slicing())
    copies = max(0 if part.copy_slots is None else part.copy_slots.size for plan in plans for part in plan.trainers)
    assert need.shared_rows == copies, "those of one batch"


def test_room_for_copies_goes_by_look_ups_and_tables() -> None:
    """16 samples a slice, a look-up in 3 rows and two in 100 rows each; a single trainer has no copies."""
    tables = {"table_offsets": np.asarray([0, 3, 103]), "feature_tables": (0, 1, 1)}
    run = replace(facts(4, 64, cache_rows=50), **tables)
    assert run.slice_rows == 3 + 32
    assert policy(run).most_held == 15
    assert [policy(replace(run, trainers=trainers)).most_held for trainers in (1, 2, 3)] == [50, 1, 3]
    assert policy(replace(run, cache_rows=0)).most_held == 0


def test_a_window_of_one_batch_holds_nothing(skewed: list[Bags]) -> None:
    herald = policy(facts(4, 64, total_rows=8000, features=4))
    plans = list(plan_segment(herald.planner(herald.window(Window(1, 1))), skewed[:5], herald.start_slicing()))
    assert not any(part.rows_written for part in plans[-1].trainers)
    for plan in plans[:-1]:
        assert sum(part.fetch_rows.size for part in plan.trainers) == plan.shared.unique_rows


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingError, match=r"telling_features = -1: use 1 or more features, or 0 for all"):
        HeraldSettings(telling_features=-1)
    with pytest.raises(SettingError, match=r"telling_features = 2: has no effect with location_aware = false"):
        HeraldSettings(telling_features=2, location_aware=False)


class KeepsItsOwnCopyAsCurrent(HeraldPlanner):
    """The published fault: where several trainers trained a row, its holder takes its own copy for current."""

    def _sums(self, batch: UsedBatch, placed: Placed, pairs: Bools) -> Any:
        own = placed.homes[batch.pair_rows] == batch.pair_users
        return super()._sums(batch, placed, pairs & own)


class WritesOnlyRowsOfTheBatch(HeraldPlanner):
    """The published fault: a row that another trainer reads next is pushed only if this batch has updated it."""

    def written(self, number: int, batch: UsedBatch, placed: Placed, retired: RetiredByGroup) -> RetiredByGroup:
        rows = {group: RetiredRows(of.rows[:1], of.slots[:1], of.writers[:1]) for group, of in retired.items()}
        return super().written(number, batch, placed, rows)


class ReadersPush(HeraldPlanner):
    """The published fault: those push a row that are to read it, not the trainer that holds it."""

    def written(self, number: int, batch: UsedBatch, placed: Placed, retired: RetiredByGroup) -> RetiredByGroup:
        groups = {
            group: RetiredRows(of.rows, of.slots, [np.abs(self.held.holders(rows)) for rows in of.rows])
            for group, of in retired.items()
        }
        return super().written(number, batch, placed, groups)


class DoesNotWaitForTheHolder(HeraldPlanner):
    """Rows are fetched before the trainer that held them has written them back."""

    def prefetch_after(self, number: int) -> int:
        return number - 1


class LosesWhatItEvicts(HeraldPlanner):
    """A row for which there is no room leaves without a write-back."""

    def written(self, number: int, batch: UsedBatch, placed: Placed, retired: RetiredByGroup) -> RetiredByGroup:
        groups = {}
        for group, of in retired.items():
            moved: list[NDArray[np.bool_]] = [self.held.holders(rows) != NOBODY for rows in of.rows]
            parts = (
                [part[kept] for part, kept in zip(parts, moved, strict=True)]
                for parts in (of.rows, of.slots, of.writers)
            )
            groups[group] = RetiredRows(*parts)
        return super().written(number, batch, placed, groups)


MUTANTS = [
    KeepsItsOwnCopyAsCurrent, WritesOnlyRowsOfTheBatch, ReadersPush, DoesNotWaitForTheHolder, LosesWhatItEvicts
]  # fmt: skip


@pytest.mark.parametrize("mutant", [None, *MUTANTS])
def test_a_broken_rule_of_herald_is_found(mutant: type[HeraldPlanner] | None) -> None:
    """Two or three trainers use most rows of a batch, and there is room for a few rows beyond."""

    class Broken(HeraldPolicy):
        def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:
            planner = super().planner(window, shared, private)
            if mutant:
                planner.__class__ = mutant
            return planner

    rng = np.random.default_rng(1)
    batches = [Bags.one_hot((ROWS * rng.random((6, 3)) ** 2).astype(np.int64)) for _ in range(14)]
    broken = Broken(HeraldSettings(), facts(3, 6, cache_rows=14))
    if mutant is None:
        check_policy(broken, batches)
    else:
        with pytest.raises(PlanError):
            check_policy(broken, batches)
