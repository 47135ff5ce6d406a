"""FAE trains as it should: hot and cold batches in turn, hot rows resident for a block; each broken rule is noticed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.errors import ConfigError, DataError, PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.sample_order import SampleOrder, require_each_once
from bagpipe_hpc.plan.section_order import Section, layout_of
from bagpipe_hpc.planning.batch_rows import Int64s, LoadedBatch
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.fae.order import hot_batches, hot_cold_order, sections
from bagpipe_hpc.planning.policies.fae.planner import WINDOW, HotBlockPlanner
from bagpipe_hpc.planning.policies.fae.policy import FaePolicy
from bagpipe_hpc.planning.policies.fae.profile import profile_path
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.policies.hot_samples import (
    OFFSETS,
    batches_of,
    drawn_samples,
    in_turns,
    policy_of,
    profile_of,
    samples_in_order,
)

TOTAL_ROWS = int(OFFSETS[-1])
BUDGET = 20


def is_hot(policy: FaePolicy, rows: Bags) -> bool:
    hot = set(profile_rows(policy))
    return set(rows.values.tolist()) <= hot


def profile_rows(policy: FaePolicy) -> list[int]:
    return np.flatnonzero(policy._is_hot).tolist()


def resident_behind(policy: FaePolicy, batches: list[Bags]) -> Iterator[tuple[set[int], set[int]]]:
    """The rows that caches hold while each batch is computed, and behind its write-backs."""
    resident: set[int] = set()
    for plan in plan_segment(policy.planner(WINDOW), batches):
        resident |= set(plan.shared.fetch_rows.tolist())
        resident |= {row for part in plan.trainers for row in part.fetch_rows.tolist()}
        during = set(resident)
        resident -= {row for part in plan.trainers for row in part.write_back_rows.tolist()}
        yield during, set(resident)


def require_blocks(policy: FaePolicy, batches: list[Bags]) -> None:
    """Hot rows alone stay, within the budget, and none behind the last batch of a block.

    Raises:
        PlanError: that is not so.
    """
    hot = [is_hot(policy, rows) for rows in batches]
    found = list(resident_behind(policy, batches))
    for number, ((during, behind), one) in enumerate(zip(found, [*hot, False], strict=True)):
        if one and len(during) > BUDGET:
            raise PlanError(f"hot batch {number}: {len(during)} rows are held")
        goes_on = one and number + 1 < len(batches) and hot[number + 1]
        if behind and not goes_on:
            raise PlanError(f"behind batch {number} caches hold {len(behind)} rows")
        if not behind <= set(profile_rows(policy)):
            raise PlanError(f"behind batch {number} caches hold cold rows")


@settings(max_examples=share_of(25), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 120), st.integers(1, 9), st.integers(1, TOTAL_ROWS + 1))
def test_any_share_of_hot_rows_trains_as_it_should(
    seed: int, trainers: int, count: int, batch_size: int, budget: int
) -> None:
    samples = drawn_samples(seed, count)
    with TemporaryDirectory() as folder:
        share = 1 + seed % 100
        policy = policy_of(Path(folder), samples, budget, batch_size=batch_size, trainers=trainers, share_percent=share)
        need = check_policy(policy, batches_of(policy, samples))
    assert need.window == WINDOW


@settings(max_examples=share_of(50), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 30), st.integers(1, 100), st.booleans())
def test_the_order_has_each_sample_once_and_one_mixed_batch(
    seed: int, count: int, batch_size: int, share: int, shuffle: bool
) -> None:
    rng = np.random.default_rng(seed)
    hot = rng.random(count) < rng.random()
    default = SampleOrder(count, 16, seed % 99, 1, shuffle)
    order = hot_cold_order(default, in_turns(batch_size, share), lambda first, last: hot[first:last])
    require_each_once(order)
    numbers = samples_in_order(order)
    mixed = [
        first
        for first in range(0, count, batch_size)
        if len(set(hot[numbers[first : first + batch_size]].tolist())) > 1
    ]
    assert len(mixed) <= 1
    assert all(first + 2 * batch_size >= count for first in mixed)
    for kind in (False, True):  # each kind stays in the order that there was
        plain = samples_in_order(default)
        assert numbers[hot[numbers] == kind].tolist() == plain[hot[plain] == kind].tolist()


@pytest.mark.parametrize("share", [1, 10, 50, 100])
def test_samples_are_read_twice_and_once_more_where_a_part_begins(share: int) -> None:
    hot = np.random.default_rng(3).random(10_000) < 0.4
    hot[:200], hot[200:500] = False, True
    order = hot_cold_order(SampleOrder(10_000, 100, 1, 0), in_turns(32, share), lambda first, last: hot[first:last])
    read, before = 0, -1
    for piece, _, _ in layout_of(order).parts(0, order.rows):
        read, before = read + 100 * (piece != before), piece
    parts = sections(int((~hot).sum()), int(hot.sum()), 32, share)
    for kind, blocks in zip(order.kinds, (97, 98), strict=True):
        assert kind.block_count == kind.blocks().size == np.count_nonzero(kind.sizes(kind.blocks())) == blocks
    assert 2 * 10_000 - 500 <= read <= 2 * 10_000 + 100 * (len(parts) - 1)


def test_shares_of_cold_and_hot_samples_take_turns() -> None:
    assert sections(100, 50, 10, 100) == [Section(False, 0, 100), Section(True, 0, 50)]
    assert sections(100, 50, 10, 40) == [
        Section(False, 0, 40),
        Section(True, 0, 20),
        Section(False, 40, 80),
        Section(True, 20, 40),
        Section(False, 80, 100),
        Section(True, 40, 50),
    ]
    assert [section.last for section in sections(1000, 0, 10, 30)] == [300, 600, 900, 1000]


@pytest.mark.parametrize("share", [30, 100])
def test_the_order_of_the_policy_has_the_share_that_is_set(tmp_path: Path, share: int) -> None:
    samples = drawn_samples(3, 200)
    policy, hot = policy_of(tmp_path, samples, BUDGET, batch_size=8, share_percent=share), profile_of(samples, BUDGET)
    default, training = SampleOrder(200, 16, 1, 0), policy.facts.training
    assert training is not None
    found = samples_in_order(policy.order(policy.settings, default, training))
    assert found.tolist() == samples_in_order(hot_cold_order(default, in_turns(8, share), hot.are_hot)).tolist()


def test_what_is_left_of_whole_batches_is_carried_on() -> None:
    """A half of 35 is one batch of 10 and seven samples, which the second half takes."""
    assert sections(35, 24, 10, 50) == [
        Section(False, 0, 10),
        Section(True, 0, 10),
        Section(False, 10, 30),
        Section(True, 10, 20),
        Section(False, 30, 35),
        Section(True, 20, 24),
    ]
    assert sections(0, 24, 10, 50) == [Section(True, 0, 10), Section(True, 10, 20), Section(True, 20, 24)]
    assert sections(0, 0, 10, 50) == []


@settings(max_examples=share_of(60), deadline=None)
@given(st.integers(0, 90), st.integers(0, 90), st.integers(1, 12), st.integers(1, 100))
def test_hot_batches_are_those_without_a_cold_sample(cold: int, hot: int, size: int, share: int) -> None:
    kinds = [section.kind for section in sections(cold, hot, size, share) for _ in range(section.first, section.last)]
    found = [number for number, first in enumerate(range(0, len(kinds), size)) if all(kinds[first : first + size])]
    assert hot_batches(cold, hot, size, share).tolist() == found


@pytest.mark.parametrize("share_percent", [1, 30, 50, 100])
def test_hot_rows_stay_for_a_block_and_no_row_longer(tmp_path: Path, share_percent: int) -> None:
    samples = drawn_samples(3, 200)
    policy = policy_of(tmp_path, samples, BUDGET, batch_size=8, share_percent=share_percent)
    batches = batches_of(policy, samples)
    hot = [is_hot(policy, rows) for rows in batches]
    assert 5 < sum(hot) < len(hot) - 5
    require_blocks(policy, batches)
    plans = list(plan_segment(policy.planner(WINDOW), batches))
    fetched = [row for plan, one in zip(plans, hot, strict=False) if one for row in plan.shared.fetch_rows.tolist()]
    for number, (one, before) in enumerate(zip(hot, [False, *hot], strict=False)):  # a block waits once
        goes_on = one and before
        wanted = plans[number - 1].shared.prefetch_after if goes_on else number
        assert plans[number].shared.prefetch_after == wanted
    blocks = sum(one and not before for before, one in zip([False, *hot], hot, strict=False))
    assert max(np.bincount(fetched)) <= blocks  # once a block


def test_without_hot_rows_every_batch_is_cold_and_with_all_of_them_hot(tmp_path: Path) -> None:
    samples = drawn_samples(4, 100)
    for budget, hot_samples in ((0, 0), (TOTAL_ROWS, 100), (10**12, 100)):
        assert profile_of(samples, budget).hot_samples == hot_samples
        policy = policy_of(tmp_path, samples, budget or 1, batch_size=9)
        policy._is_hot[profile_rows(policy) if not budget else []] = False  # no setting says 0: it is the default
        batches = batches_of(policy, samples)
        behind = [rows for _, rows in resident_behind(policy, batches)]
        assert all(behind[:-2]) if hot_samples else not any(behind)
        assert behind[-1] == set()


class Broken(FaePolicy):
    """Plans by a broken planner."""

    kind: type[HotBlockPlanner]

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:  # noqa: ARG002
        return self.kind(self._is_hot, self.facts.trainers, shared, private)


class CopiesTooEarly(HotBlockPlanner):
    """Hot rows are copied before the cold block has ended."""

    def prefetch_after(self, number: int) -> int:
        return min(super().prefetch_after(number), max(0, number - 1))


class FetchesColdTooEarly(HotBlockPlanner):
    """A cold batch waits for no other, as if it were of a hot block."""

    def prefetch_after(self, number: int) -> int:  # noqa: ARG002
        return 0


class LosesTheBlock(HotBlockPlanner):
    """The rows of a block are dropped at its end."""

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:
        self.rows.take_out(number, batch, super().leaving(number, batch))
        return np.empty(0, dtype=np.int64)


class KeepsTheBlock(HotBlockPlanner):
    """The rows of a block stay behind its end."""

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        return np.empty(0, dtype=np.int64)


class MixesBlocks(HotBlockPlanner):
    """A batch with a hot row is a hot one."""

    def is_hot(self, batch: LoadedBatch) -> bool:
        return bool(self._is_hot[batch.unique].any())


class AddsUpLate(HotBlockPlanner):
    """The sums of a hot batch run behind the next one."""

    def choose(self, number, batch, following):  # type: ignore[no-untyped-def]
        choice = super().choose(number, batch, following)
        return replace(choice, now=np.zeros_like(choice.now))


UNSOUND = {
    CopiesTooEarly: "still holds|end otherwise",
    FetchesColdTooEarly: "still holds|end otherwise",
    LosesTheBlock: "still holds|end otherwise",
    AddsUpLate: "end otherwise|still holds",
}
UNBOUNDED = {KeepsTheBlock: "behind batch .* caches hold", MixesBlocks: "caches hold|rows are held"}


@pytest.mark.parametrize("kind", [*UNSOUND, *UNBOUNDED])
def test_broken_rules_are_noticed(tmp_path: Path, kind: type[HotBlockPlanner]) -> None:
    samples = drawn_samples(5, 200)
    sound = policy_of(tmp_path, samples, BUDGET, batch_size=8, share_percent=40)
    batches = batches_of(sound, samples)
    check_policy(sound, batches)
    broken = Broken(sound.settings, sound.facts)
    broken.kind = kind
    check = check_policy if kind in UNSOUND else require_blocks
    with pytest.raises(PlanError, match=(UNSOUND | UNBOUNDED)[kind]):
        check(broken, batches)


def test_a_run_that_does_not_train_wants_no_profile() -> None:
    policy = build_policy(PolicyConfig("fae"), RunFacts(OFFSETS, 2, 8))
    assert not profile_rows(policy)  # type: ignore[arg-type]


def test_a_profile_of_other_rows_or_settings_is_refused(tmp_path: Path) -> None:
    samples = drawn_samples(1, 50)
    policy = policy_of(tmp_path, samples, BUDGET, batch_size=8)
    training, default = policy.facts.training, SampleOrder(50, 16, 1, 0)
    assert training is not None
    named = replace(policy.settings, profile=profile_path(policy.settings, training).name)
    policy.order(named, default, training)
    refused = {
        "is of other training rows": (named, replace(training, digest="of others")),
        "was made with most hot rows = 20, and now it is 21": (replace(named, hot_rows=21), training),
        "made with policy.sample_percent = 5, and now it is 7": (replace(named, sample_percent=7.0), training),
        "made with train.seed = 1, and now it is 2": (named, replace(training, seed=2)),
    }
    for what, (asked, rows) in refused.items():
        with pytest.raises(SettingError, match=rf"policy\.profile = 'hot_rows-20-5-1\.h5': .*{what}.*; remove it"):
            policy.order(asked, default, rows)
    other_tables = RunFacts(np.asarray([0, 5]), 2, 8, training=training)
    with pytest.raises(ConfigError, match=r"embedding_dim_of: .*; of 63 rows 5 have the same; leave it out"):
        FaePolicy(policy.settings, other_tables)
    with pytest.raises(
        SettingError, match=r"policy\.hot_rows = 20: a trainer's cache holds cache\.rows = 19; use fewer"
    ):
        FaePolicy(policy.settings, replace(policy.facts, cache_rows=19))
    FaePolicy(policy.settings, replace(policy.facts, cache_rows=20))
    with pytest.raises(DataError, match=r"none\.h5: there is no profile of hot rows; all ranks must see"):
        FaePolicy(replace(policy.settings, profile="none.h5"), policy.facts)


@pytest.mark.parametrize(
    "wrong", [{"hot_rows": -1}, {"sample_percent": 0.0}, {"sample_percent": 101.0}, {"share_percent": 0}]
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=f"^{next(iter(wrong))} = "):
        FaeSettings(**wrong)  # type: ignore[arg-type]
