"""Rows stay until their slots are needed, the least recently used leave, and none that a batch around uses."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.errors import CapacityError, PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.batch_rows import LoadedBatch, RowChoice
from bagpipe_hpc.planning.checking.executor import PlanExecutor, train_plainly
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.policies.scratchpipe import ScratchPipe, ScratchPipePlanner
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED, CacheSlots
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import skewed_batches

TABLES = (60, 200)
HELD = {"as published": (3, 2), "short": (1, 0), "no future": (3, 0), "long": (5, 4)}


def facts(trainers: int = 2, cache_rows: int = 0) -> RunFacts:
    return RunFacts(np.asarray([0, 60, 260]), trainers, batch_size=9, cache_rows=cache_rows)


def most_held(batches: list[Bags], past: int, future: int) -> int:
    """The most distinct rows of so many consecutive batches."""
    ends = range(1, len(batches) + 1)
    parts = [np.concatenate([rows.values for rows in batches[max(0, end - past - 1 - future) : end]]) for end in ends]
    return max(np.unique(part).size for part in parts)


@settings(max_examples=share_of(25), deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.sampled_from(sorted(HELD)),
    st.sampled_from([None, 0, 1, 20, 1000]),
)
def test_it_trains_as_plain_training_does(seed: int, trainers: int, held: str, spare: int | None) -> None:
    """Whatever the cache: without a limit, just enough for what is held, or more."""
    past, future = HELD[held]
    batches = skewed_batches(seed, TABLES, count=20)
    cache_rows = 0 if spare is None else most_held(batches, past, future) + spare
    own = ScratchPipe.Settings(past=past, future=future)
    need = check_policy(ScratchPipe(own, facts(trainers, cache_rows)), batches)
    assert need.window == Window(past + 1 + future, 1)
    assert need.private_rows == 0
    assert not cache_rows or need.total_rows <= cache_rows


def misses_of_a_model(batches: list[Bags], past: int, future: int, capacity: int) -> list[list[int]]:
    """By the published rules, row by row: a hit map as of the plan, whose order is that of the last uses."""
    uses = [list(dict.fromkeys(rows.grid.T.reshape(-1).tolist())) for rows in batches]  # type: ignore[union-attr]
    hit_map: dict[int, None] = {}
    misses = []
    for number, used in enumerate(uses):
        held = set().union(*uses[max(0, number - past) : number + future + 1])
        misses.append([row for row in used if row not in hit_map])
        for row in used:
            hit_map.pop(row, None)
            hit_map[row] = None
        victims = [row for row in hit_map if row not in held]
        for row in victims[: max(0, len(hit_map) - capacity)]:
            del hit_map[row]
        assert len(hit_map) <= capacity
    return misses


@settings(max_examples=share_of(25), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(HELD)), st.sampled_from([0, 1, 20, 1000]))
def test_it_fetches_what_the_published_rules_miss(seed: int, held: str, spare: int) -> None:
    past, future = HELD[held]
    batches = skewed_batches(seed, TABLES, count=20)
    capacity = most_held(batches, past, future) + spare
    policy = ScratchPipe(ScratchPipe.Settings(past=past, future=future), facts(2, capacity))
    plans = list(plan_segment(policy.planner(policy.window(Window(4, 2))), batches))[:-1]
    fetched = [plan.shared.fetch_rows.tolist() for plan in plans]
    assert fetched == misses_of_a_model(batches, past, future, capacity)


def test_lists_of_old_batches_are_dropped() -> None:
    """The planner's memory does not grow with the run where every row is used again and again."""
    batches = skewed_batches(3, (10, 10), count=300)
    planner = ScratchPipe(ScratchPipe.Settings(), facts(2, 260)).planner(Window(6, 1))
    for _ in plan_segment(planner, batches):
        assert planner.size().window_bytes < 8000


class HoldsTwoPast(ScratchPipePlanner):
    """(2, 2): rows leave behind a batch that uses them, before its sums have reached them."""

    def is_held(self, newest_use: int, planned: int) -> bool:
        return super().is_held(newest_use, planned + 1)


class HoldsOneFuture(ScratchPipePlanner):
    """(3, 1): a row may have left for the batch two before the one that fetches it, and is not at the servers yet."""

    def prefetch_after(self, number: int) -> int:
        return max(0, super().prefetch_after(number) - 1)


class HoldsNothingAhead(ScratchPipePlanner):
    """Rows leave though the batches between use them."""

    def leaving(self, number: int, batch: LoadedBatch) -> Any:
        following = self._loaded[0].unique if self._loaded else batch.unique[:0]
        idle = following[self.rows.has(following) & ~self.rows.are_in(following, batch.unique)]
        return np.union1d(super().leaving(number, batch), idle)


class DoesNotWait(ScratchPipePlanner):
    """Rows are fetched whatever is at the servers."""

    def prefetch_after(self, number: int) -> int:  # noqa: ARG002
        return 0


class TakesSlotsEarly(ScratchPipePlanner):
    """Slots are taken before those who had them are at the servers: no row waits longer than where slots are plenty."""

    def _make_room(self, number: int, has_slots: Callable[[], bool]) -> None:
        waits = self._prefetch_after
        super()._make_room(number, has_slots)
        self._prefetch_after = waits


class WritesBackEarly(ScratchPipePlanner):
    """Slots are free with the group before the one that writes the rows back."""

    def leaving_group(self, number: int) -> int:
        return super().leaving_group(number) - 1


class SumsNothingNow(ScratchPipePlanner):
    """No sum is waited for."""

    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:  # noqa: ARG002
        return super().choose(number, batch, None)


class DropsTheRest(ScratchPipePlanner):
    """What stays to the end is not written back."""

    def closing_plan(self) -> Any:
        plan = super().closing_plan()
        nothing = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        parts = [replace(part, write_back_rows=nothing[0], write_back_slots=nothing[1]) for part in plan.trainers]
        return replace(plan, trainers=tuple(parts))


WHERE_SLOTS_ARE_PLENTY: list[tuple[type[ScratchPipePlanner], str]] = [
    (HoldsTwoPast, "leave behind a batch that uses it"),
    (HoldsOneFuture, "still holds"),
    (HoldsNothingAhead, "still holds|is to leave"),
    (DoesNotWait, "still holds"),
]
WHERE_THE_CACHE_IS_FULL: list[tuple[type[ScratchPipePlanner], str]] = [
    (TakesSlotsEarly, "still holds"),
    (WritesBackEarly, "still holds"),
    (SumsNothingNow, "end otherwise"),
    (DropsTheRest, "still holds"),
]
"""Once rows leave, those of a batch are fetched behind the group that makes room for them, so no other wait shows."""


def least_capacity(batches: list[Bags]) -> int:
    """Rows that fit: those of four batches at least, of six at most, since some of the last two have no slots yet."""
    for capacity in range(most_held(batches, 3, 0), most_held(batches, 3, 2)):
        policy = ScratchPipe(ScratchPipe.Settings(), facts(2, capacity))
        try:
            list(plan_segment(policy.planner(Window(6, 1)), batches))
        except CapacityError:
            continue
        return capacity
    return most_held(batches, 3, 2)


class Mutated(ScratchPipe):
    """The policy with another planner."""

    def __init__(self, kind: type[ScratchPipePlanner], cache_rows: int) -> None:
        super().__init__(ScratchPipe.Settings(), facts(2, cache_rows))
        self._kind = kind

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> ScratchPipePlanner:
        run = self.facts
        return self._kind(run.total_rows, run.trainers, window, min(shared, run.cache_rows), private, past=3, future=2)


def check_with_plenty(kind: type[ScratchPipePlanner], batches: list[Bags], *, eager: bool) -> None:
    """Nobody waits for a slot, and rows leave as soon as they may."""
    rows = facts().total_rows
    planner = kind(rows, 2, Window(6, 1), past=3, future=2)
    executor = PlanExecutor(rows, 2, rows, 0, eager=eager)
    executor.run(list(plan_segment(planner, batches)), batches)
    np.testing.assert_array_equal(executor.store, train_plainly(batches, rows))


@pytest.mark.parametrize("eager", [True, False])
def test_the_rules_are_sound(eager: bool) -> None:
    batches = skewed_batches(1, TABLES, count=30)
    check_with_plenty(ScratchPipePlanner, batches, eager=eager)
    check_policy(Mutated(ScratchPipePlanner, least_capacity(batches)), batches)
    check_policy(ScratchPipe(ScratchPipe.Settings(past=5, future=4), facts(1)), skewed_batches(0, TABLES, count=20))


@pytest.mark.parametrize(("kind", "what"), WHERE_SLOTS_ARE_PLENTY)
def test_a_broken_rule_is_noticed_where_slots_are_plenty(kind: type[ScratchPipePlanner], what: str) -> None:
    with pytest.raises(PlanError, match=what):
        check_with_plenty(kind, skewed_batches(1, TABLES, count=30), eager=True)


@pytest.mark.parametrize(("kind", "what"), WHERE_THE_CACHE_IS_FULL)
def test_a_broken_rule_is_noticed_where_the_cache_is_full(kind: type[ScratchPipePlanner], what: str) -> None:
    batches = skewed_batches(1, TABLES, count=30)
    with pytest.raises(PlanError, match=what):
        check_policy(Mutated(kind, least_capacity(batches)), batches)


def test_a_cache_that_is_too_small_is_refused() -> None:
    """Who holds rows of fewer batches goes on, and is noticed."""
    batches = skewed_batches(1, TABLES)
    rows = least_capacity(batches) - 1
    with pytest.raises(CapacityError, match=rf"a cache of {rows} rows, and the batch, 3 before it and 2 behind it"):
        check_policy(Mutated(ScratchPipePlanner, rows), batches)
    with pytest.raises(PlanError, match="leave behind a batch that uses it"):
        check_policy(Mutated(HoldsTwoPast, rows), batches)
    with pytest.raises(CapacityError, match="batch 0: a cache of 3 rows, and the batch"):
        check_policy(Mutated(ScratchPipePlanner, 3), batches)


@pytest.mark.parametrize(("name", "value"), [("past", 0), ("future", -1), ("past", 1001)])
def test_bad_settings_are_refused(name: str, value: int) -> None:
    with pytest.raises(SettingError, match=rf"{name} = {value}: use"):
        ScratchPipe.Settings(**{name: value})


@pytest.mark.parametrize(("cache_rows", "shared", "fetches_late"), [(0, 25, False), (90, 90, True), (900, 260, True)])
def test_a_cache_of_given_rows_fills_up(cache_rows: int, shared: int, fetches_late: bool) -> None:
    """So it is not measured; without `cache.rows` all batches must be read to know how many rows are held."""
    policy = ScratchPipe(ScratchPipe.Settings(), facts(2, cache_rows))
    assert policy.expected_slots(CacheSlots(20, 0)) == CacheSlots(shared, 0)
    assert policy.fetches_late is fetches_late


def test_it_has_a_short_name() -> None:
    policy = build_policy(PolicyConfig("scratchpipe"), facts())
    assert policy.settings == ScratchPipe.Settings(past=3, future=2)
    assert policy.window(Window(40, 10)) == Window(6, 1)
