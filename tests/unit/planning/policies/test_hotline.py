"""Samples of hot rows come first, need no fetch, and train with the others as one batch does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.batch_rows import LoadedBatch, RetiredRows, RowChoice
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.policies.hotline.hot_rows import HotRows
from bagpipe_hpc.planning.policies.hotline.policy import Hotline
from bagpipe_hpc.planning.policies.hotline.rules import HotlinePlanner
from bagpipe_hpc.planning.policies.hotline.settings import HotlineSettings
from bagpipe_hpc.planning.policy import Assignment, RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.terminal import counted
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import bags_of, drawn_lengths, skewed_batches

TABLES = (60, 200)
OWN = HotlineSettings(hot_rows=60, learning_batches=3, refresh_batches=4)


def facts(trainers: int = 2, cache_rows: int = 0) -> RunFacts:
    return RunFacts(np.asarray([0, 60, 260]), trainers, batch_size=9, cache_rows=cache_rows)


def ragged_batches(seed: int, count: int = 14) -> list[Bags]:
    rng = np.random.default_rng(seed)
    firsts, sizes = np.asarray([0, 60]), np.asarray(TABLES)
    drawn = firsts[:, np.newaxis] + (sizes[:, np.newaxis] * rng.random((count, 9, 2, 4)) ** 4).astype(np.int64)
    return [bags_of(rows, drawn_lengths(rng, 9, 2, 4)) for rows in drawn]


@settings(max_examples=share_of(30), deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.builds(
        HotlineSettings,
        hot_rows=st.sampled_from([1, 30, 100, 260]),
        learning_batches=st.integers(1, 5),
        refresh_batches=st.sampled_from([0, 1, 4]),
        decay=st.sampled_from([0.0, 0.5, 1.0]),
    ),
    st.sampled_from([skewed_batches, ragged_batches]),
)
def test_it_trains_as_plain_training_does(seed: int, trainers: int, own: HotlineSettings, draw: Any) -> None:
    """Whatever is hot, and however often that changes; no early micro-batch looks up what is fetched."""
    batches = skewed_batches(seed, TABLES, count=14) if draw is skewed_batches else ragged_batches(seed)
    need = check_policy(Hotline(own, facts(trainers)), batches)
    assert need.window == Window(1, 1)


def planned(policy: Hotline, batches: list[Bags], *, training: bool = True) -> list[BatchPlan]:
    return list(plan_segment(policy.planner(Window(1, 1)), batches, policy.start_slicing(), training=training))[:-1]


def test_micro_batches_are_even_and_hot_rows_are_fetched_once() -> None:
    policy, batches = Hotline(OWN, facts(3)), skewed_batches(4, TABLES, count=20, samples=40)
    hot = policy.start_learning()
    popular_samples = 0
    for plan, rows in zip(planned(policy, batches), batches, strict=True):
        held = hot.held.copy()
        is_popular = held[rows.grid].all(1)  # type: ignore[index]
        early = [0 if part.micro_batches is None else int(part.micro_batches[:-1].sum()) for part in plan.trainers]
        assert sum(early) == is_popular.sum()
        assert max(early) - min(early) <= 1
        sizes = [rows.samples // 3 if part.samples is None else part.samples.size for part in plan.trainers]
        assert max(sizes) - min(sizes) <= 1
        if not is_popular.any():
            assert all(part.samples is None for part in plan.trainers)
        for part, count in zip(plan.trainers, early, strict=True):
            assert part.samples is None or is_popular[part.samples[:count]].all()
        fetched = np.concatenate([plan.shared.fetch_rows, *(part.fetch_rows for part in plan.trainers)])
        assert not held[fetched].any()
        popular_samples += int(is_popular.sum())
        hot.see(rows.values)
    assert popular_samples > 100


def test_hot_rows_take_the_slots_of_other_rows_where_all_are_one_trainers() -> None:
    batches = skewed_batches(4, TABLES, count=20, samples=40)
    need = check_policy(Hotline(OWN, facts(1)), batches)
    assert need.private_rows == 0
    assert need.shared_rows < OWN.hot_rows + max(np.unique(rows.values).size for rows in batches)


def test_an_evaluation_is_computed_whole() -> None:
    policy, batches = Hotline(OWN, facts()), skewed_batches(4, TABLES)
    assert any(part.micro_batches is not None for plan in planned(policy, batches) for part in plan.trainers)
    for plan in planned(policy, batches, training=False):
        assert all(part.micro_batches is None for part in plan.trainers)


def test_rows_are_hot_by_decayed_counts() -> None:
    own = HotlineSettings(learning_batches=2, refresh_batches=2, decay=0.25)
    hot = HotRows(10, 2, own)
    assert [hot.see(np.asarray(rows)).tolist() for rows in ([1, 1, 2, 7], [1, 2, 3, 3])] == [[], []]
    assert np.flatnonzero(hot.held).tolist() == [1, 2]  # 3, 2, 2 look-ups of rows 1, 2 and 3: the first are hot
    assert hot.see(np.asarray([3, 4])).tolist() == []
    assert np.flatnonzero(hot.held).tolist() == [1, 2]
    assert hot.see(np.asarray([4, 4])).tolist() == [1, 2]  # a quarter of the old ones: 0.75, 0.5, 1.5 and 3 of row 4
    assert np.flatnonzero(hot.held).tolist() == [4]  # row 3 is hot, and held once a batch looks it up
    hot.see(np.asarray([3]))
    assert np.flatnonzero(hot.held).tolist() == [3, 4]
    assert hot.see(np.asarray([9, 9, 9])).tolist() == [4]  # 1.375, 0.75 and 3 of row 9: row 3 stays
    assert np.flatnonzero(hot.held).tolist() == [3, 9]


class FetchedWithTheBatch(Hotline):
    """A sample is popular once its rows are hot, though they are still to be fetched."""

    def popular(self, rows: Bags, hot: HotRows) -> NDArray[np.bool_]:
        others = rows.sample_of_value[~hot._is_hot[rows.values]]
        popular: NDArray[np.bool_] = np.bincount(others, minlength=rows.samples) == 0
        return popular


class OneColdRow(Hotline):
    """A sample is popular if its first feature's rows are held."""

    def popular(self, rows: Bags, hot: HotRows) -> NDArray[np.bool_]:
        return super().popular(rows.of_features((0,)), hot)


class DropsDemotedRows(HotlinePlanner):
    """Rows that are no longer hot are not written back."""

    def _retire(self, number: int, batch: LoadedBatch, dead: RetiredRows) -> Any:
        retired = super()._retire(number, batch, dead)
        for group in retired.values():
            del group.rows[1:], group.slots[1:], group.writers[1:]
        return retired


class SumsLate(HotlinePlanner):
    """Sums are not waited for, though early micro-batches read hot rows at once."""

    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:
        choice = super().choose(number, batch, following)
        return replace(choice, now=np.zeros_like(choice.now))


class EarlyByOne(Hotline):
    """A trainer's early micro-batch takes one sample of the other."""

    def deal(self, popular: NDArray[np.bool_]) -> list[Any]:
        return [
            (np.append(part[0], part[1][:1]), part[1][1:]) if isinstance(part, tuple) else part
            for part in super().deal(popular)
        ]


BROKEN = {
    FetchedWithTheBatch: "is not in its cache before",
    OneColdRow: "is not in its cache before",
    EarlyByOne: "is not in its cache before",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_split_is_noticed(kind: type[Hotline]) -> None:
    with pytest.raises(PlanError, match=BROKEN[kind]):
        check_policy(kind(OWN, facts()), skewed_batches(2, TABLES, count=20))


@pytest.mark.parametrize("kind", [DropsDemotedRows, SumsLate])
def test_a_broken_planner_is_noticed(kind: type[HotlinePlanner]) -> None:
    class Broken(Hotline):
        def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> HotlinePlanner:
            return kind(self.start_learning, 260, 2, window, shared, private)

    with pytest.raises(PlanError):
        check_policy(Broken(OWN, facts()), skewed_batches(2, TABLES, count=20))


def test_micro_batches_are_declared() -> None:
    class Silent(Hotline):
        has_micro_batches = False

    with pytest.raises(PlanError, match="Silent gives micro-batches, and does not say so: set has_micro_batches"):
        check_policy(Silent(OWN, facts()), skewed_batches(2, TABLES))


class Halves(LookaheadPolicy):
    """Micro-batches with rows that have one home."""

    has_micro_batches = True

    def assignment(self) -> Assignment:
        return lambda rows: [(np.arange(1), np.arange(1, rows.samples)), np.arange(0)]


def test_rows_with_one_home_have_no_micro_batches() -> None:
    run = RunFacts(np.asarray([0, 9]), 2, batch_size=9, sharing="home")
    with pytest.raises(SettingError, match=r"cache.sharing = 'home': .*Halves' gives micro-batches"):
        build_policy(PolicyConfig(f"{__name__}:Halves"), run)


@pytest.mark.parametrize(
    ("name", "value"), [("hot_rows", -1), ("learning_batches", 0), ("refresh_batches", -1), ("decay", 1.5)]
)
def test_bad_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=rf"{name} = {value}: use"):
        HotlineSettings(**{name: value})  # type: ignore[arg-type]


def test_the_number_of_hot_rows_is_asked_for() -> None:
    with pytest.raises(SettingError, match=r"policy\.hot_rows = 0: say how many rows are hot, or set cache\.rows"):
        build_policy(PolicyConfig("hotline"), facts())
    policy = build_policy(PolicyConfig("hotline"), facts(cache_rows=80))
    hot = policy.start_learning()  # type: ignore[attr-defined]
    for _ in range(20):
        hot.see(np.arange(260))
    hot.see(np.arange(260))
    assert hot.held.sum() == 40


@pytest.mark.parametrize(("most_batches", "is_told"), [(0, False), (1, True), (3, True), (4, False)])
def test_learning_that_does_not_end_is_told(most_batches: int, is_told: bool) -> None:
    """There is no segment of training where a run evaluates alone."""
    told = Hotline(OWN, facts()).remark(most_batches)
    assert told.startswith("policy.learning_batches = 3: hot rows are learned anew") is is_told
    assert f"with {counted(most_batches, 'batch')} between" in told or not is_told
