"""Slipstream finds the rows that hardly move, and leaves out the hot samples that look up those alone."""

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.plan.bags import Bags, joined
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.full_batches import sliced
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.planning.checking.executor import PlanExecutor, train_plainly
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.policies.fae.order import hot_batches
from bagpipe_hpc.planning.policies.fae.planner import WINDOW
from bagpipe_hpc.planning.policies.fae.policy import FaePolicy
from bagpipe_hpc.planning.policies.fae.profile import read_profile
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policies.slipstream.policy import SlipstreamPolicy
from bagpipe_hpc.planning.policies.slipstream.settings import SlipstreamSettings
from bagpipe_hpc.planning.policy import Sight
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.storage.policy_memory import memory_path, save_memory
from tests.drawing import share_of
from tests.unit.planning.policies.hot_samples import OFFSETS, batches_of, drawn_samples, policy_of

BATCH_SIZE, WIDTH = 8, 4
FROZEN_PART = 0.8


def slipstream_of(directory: Path, samples: Bags, trainers: int = 2, **own: Any) -> SlipstreamPolicy:
    """The policy for these samples, half of whose rows are hot."""
    fae = policy_of(directory, samples, 32, batch_size=BATCH_SIZE, trainers=trainers)
    chosen = {"first_snapshot": 2, "between_percent": 10.0, "judged_percent": 100.0} | own
    return SlipstreamPolicy(SlipstreamSettings(hot_rows=32, **chosen), fae.facts)


def segment_of(batches: int, first_batch: int, epoch: int = 0) -> Segment:
    return Segment(SegmentKind.TRAIN, epoch, first_batch, batches - first_batch, 0, 9, BATCH_SIZE, checkpoint=False)


def shown(policy: SlipstreamPolicy, batches: list[Bags], seed: int = 1) -> set[int]:
    """Show two snapshots, between which some rows do not move; which these are."""
    rng = np.random.default_rng(seed)
    watched = policy._watched
    assert watched is not None
    first = rng.random((watched.rows.size, WIDTH), dtype=np.float32)
    frozen = rng.random(watched.rows.size) < FROZEN_PART
    moved = np.where(rng.random(first.shape) < 0.5, 0.5, -0.5)
    second = np.where(frozen[:, np.newaxis], first, first + moved).astype(np.float32)
    weights = np.empty_like(first)  # what is shown may be written to afterwards
    for batch, values in zip(watched.before, (first, second), strict=True):
        weights[:] = values
        policy.see(Sight(0, batch, batch, weights, lambda number: batches[number]))
    return set(watched.rows[frozen].tolist())


def test_stale_rows_are_those_that_did_not_move(tmp_path: Path) -> None:
    samples = drawn_samples(1, 400)
    policy = slipstream_of(tmp_path, samples, drop_percent=50.0, drop_tolerance=45.0)
    batches = batches_of(policy, samples)
    frozen = shown(policy, batches)
    assert set(np.flatnonzero(policy._stale).tolist()) == frozen
    assert policy._watched is not None
    behind = policy._watched.before[1]
    keep = policy.keeping(segment_of(len(batches), behind))
    assert keep is not None
    hot = set(policy._watched.rows.tolist())
    dropped = 0
    for rows in batches[behind:]:
        of_samples = [set(rows.take(np.asarray([number])).values.tolist()) for number in range(rows.samples)]
        kept = keep(rows)
        if not all(own <= hot for own in of_samples):
            assert kept is None
            continue
        assert kept is not None
        assert kept.tolist() == [not own <= frozen for own in of_samples]
        dropped += kept.tolist().count(False)
    assert dropped > 20


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf])
def test_a_first_snapshot_that_is_not_finite_is_refused(tmp_path: Path, weight: float) -> None:
    """No row could be seen to move from there: infinities less themselves are no numbers."""
    policy = slipstream_of(tmp_path, drawn_samples(1, 400))
    assert policy._watched is not None
    first = np.zeros((policy._watched.rows.size, WIDTH), dtype=np.float32)
    policy.restore({"first": first.copy()})
    first[-1, 2] = weight
    with pytest.raises(ValueError, match=r"first must be float32 \[\d+, D\], the weights of the hot rows, all finite"):
        policy.restore({"first": first})


def test_what_it_keeps_is_all_that_it_needs(tmp_path: Path) -> None:
    """Another object that is given the first snapshot decides as this one; one that is given both, too."""
    samples = drawn_samples(1, 400)
    policies = [slipstream_of(tmp_path, samples, drop_percent=50.0, drop_tolerance=45.0) for _ in range(3)]
    batches = batches_of(policies[0], samples)
    watched = policies[0]._watched
    assert watched is not None
    rng = np.random.default_rng(3)
    first = rng.random((watched.rows.size, WIDTH), dtype=np.float32)
    second = first + np.where(rng.random(first.shape) < 0.02, np.float32(0.2), np.float32(0))
    sights = [
        Sight(0, batch, batch, w, batches.__getitem__) for batch, w in zip(watched.before, (first, second), strict=True)
    ]
    kept = [policies[0].see(sight) for sight in sights]
    policies[1].restore(kept[0])
    again = policies[1].see(sights[1])
    policies[2].restore(kept[1])
    assert np.flatnonzero(policies[0]._stale).size > 5
    for name, array in kept[1].items():
        np.testing.assert_array_equal(again[name], array)
    for policy in policies[1:]:
        np.testing.assert_array_equal(policy._stale, policies[0]._stale)
        assert policy._stale_in == 0


NOT_KEPT: list[dict[str, np.ndarray]] = [
    {},
    {"stale": np.empty(0, np.int64)},
    {"stale": np.empty(0, np.int64), "epoch": np.empty(0, np.int64)},
    {"stale": np.empty(0, np.int64), "epoch": np.asarray(0)},
    {"stale": np.empty(0, np.int64), "epoch": np.asarray([0.0])},
    {"stale": np.empty(0, np.float64), "epoch": np.asarray([0])},
    {"stale": np.asarray(3), "epoch": np.asarray([0])},
]


NO_SNAPSHOTS = [np.zeros(shape, np.float32) for shape in ((7,), (32,), (1, WIDTH))] + [np.zeros((32, WIDTH))]


@pytest.mark.parametrize("kept", [*NOT_KEPT, *({"first": first} for first in NO_SNAPSHOTS)])
def test_what_it_never_keeps_is_refused(kept: dict[str, np.ndarray], tmp_path: Path) -> None:
    policy = slipstream_of(tmp_path, drawn_samples(1, 400))
    policy.restore({"first": np.zeros((32, WIDTH), np.float32)})
    with pytest.raises(ValueError, match=r"must be (int64|float32)|has neither first nor stale"):
        policy.restore(kept)


def test_rows_are_stale_for_one_epoch(tmp_path: Path) -> None:
    policy = slipstream_of(tmp_path, drawn_samples(1, 400))
    assert policy._watched is not None
    rows = policy._watched.rows
    assert policy.keeping(segment_of(40, 0)) is None
    for epoch, stale in enumerate((rows[:3], rows[2:9])):
        policy.restore({"stale": stale, "epoch": np.asarray([epoch])})
        assert np.flatnonzero(policy._stale).tolist() == stale.tolist()
        assert [policy.keeping(segment_of(40, 30, epoch=number)) is not None for number in range(3)] == [
            number == epoch for number in range(3)
        ]


def test_a_first_snapshot_of_another_width_is_refused(tmp_path: Path) -> None:
    samples = drawn_samples(1, 400)
    policy = slipstream_of(tmp_path, samples)
    batches, watched = batches_of(policy, samples), policy._watched
    assert watched is not None
    policy.restore({"first": np.zeros((watched.rows.size, WIDTH + 1), dtype=np.float32)})
    weights = np.zeros((watched.rows.size, WIDTH), dtype=np.float32)
    with pytest.raises(CheckpointError, match=r"the first snapshot that was kept has weights \[\d+, 5\]"):
        policy.see(Sight(0, watched.before[1], 9, weights, batches.__getitem__))


def test_decisions_of_another_run_are_taken_over(tmp_path: Path) -> None:
    samples = drawn_samples(1, 400)
    policy = slipstream_of(tmp_path, samples, replay=str(tmp_path / "run"))
    batches, watched = batches_of(policy, samples), policy._watched
    assert watched is not None
    weights = np.zeros((watched.rows.size, WIDTH), dtype=np.float32)
    sights = [Sight(0, batch, 100 + batch, weights, batches.__getitem__) for batch in watched.before]
    policy.see(sights[0])
    (tmp_path / "run").mkdir()
    path = memory_path(tmp_path / "run", sights[1].step)
    save_memory(path, {"stale": watched.rows[3:8], "epoch": np.asarray([0])})
    policy.see(sights[1])
    assert np.flatnonzero(policy._stale).tolist() == watched.rows[3:8].tolist()
    for wrong in (
        {"stale": np.asarray([-1]), "epoch": np.asarray([0])},
        {"stale": watched.rows, "epoch": np.asarray([1])},
        {"first": weights},
        *NOT_KEPT,
    ):
        save_memory(path, wrong)
        policy.see(sights[0])
        with pytest.raises(SettingError, match=r"policy\.replay = .* is not of this epoch and these hot rows"):
            policy.see(sights[1])
    path.unlink()
    policy.see(sights[0])
    with pytest.raises(CheckpointError, match=f"{path}: is absent"):
        policy.see(sights[1])


@settings(max_examples=share_of(15), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_what_is_left_trains_as_it_should(tmp_path_factory: Any, seed: int, trainers: int) -> None:
    """Plans without the samples that are left out end as plain training on the others does."""
    samples = drawn_samples(seed, 200)
    policy = slipstream_of(tmp_path_factory.mktemp("slip"), samples, trainers, drop_percent=50.0, drop_tolerance=45.0)
    batches = batches_of(policy, samples)
    need = check_policy(policy, batches)
    if policy._watched is None:
        return
    shown(policy, batches, seed)
    rest = batches[policy._watched.before[1] :]
    keep = policy.keeping(segment_of(len(batches), policy._watched.before[1]))
    planner, slicing = policy.planner(WINDOW, need.shared_rows, need.private_rows), policy.start_slicing()
    plans = list(plan_segment(planner, rest, slicing, keep))
    trained = [rows for rows, _ in sliced(rest, slicing, keep)]
    assert [plan.shared.samples for plan in plans] == [*(rows.samples for rows in trained), 0]
    total_rows = int(OFFSETS[-1])
    expected = train_plainly(trained, total_rows)
    whole = joined(rest)
    for eager in (True, False):
        executor = PlanExecutor(total_rows, trainers, need.shared_rows, need.private_rows, eager=eager)
        executor.run(plans, [in_place(plan, number, whole) for number, plan in enumerate(plans[:-1])])
        np.testing.assert_array_equal(executor.store, expected)


def in_place(plan: BatchPlan, number: int, whole: Bags) -> Bags:
    """What the samples that a plan may name look up: from the first one of its place on, or those of its batch."""
    is_named = any(part.samples is not None for part in plan.trainers)
    first = number * BATCH_SIZE
    return whole.part(first, whole.samples if is_named else min(first + BATCH_SIZE, whole.samples))


def test_hot_and_cold_samples_are_in_no_batch_together(tmp_path: Path) -> None:
    """With turns of both, in which hot batches become fewer, and cold ones stay as they are."""
    samples = drawn_samples(1, 400)
    policy = slipstream_of(tmp_path, samples, drop_percent=50.0, drop_tolerance=45.0, share_percent=25)
    assert policy._watched is not None
    batches, hot = batches_of(policy, samples), set(policy._watched.rows.tolist())
    frozen = shown(policy, batches)
    rest = batches[policy._watched.before[1] :]
    trained = [rows for rows, _ in sliced(rest, policy.start_slicing(), policy.keep)]
    assert len(trained) < len(rest)
    cold = [rows for rows in rest if not hot.issuperset(rows.values.tolist())]
    assert [rows for rows in trained if any(rows is own for own in cold)] == cold
    runs = [
        list(run) for is_cold, run in groupby(trained, lambda rows: any(rows is own for own in cold)) if not is_cold
    ]
    assert len(runs) > 1
    for run in runs:
        *full, last = run
        assert all(rows.samples == BATCH_SIZE for rows in full)
        assert 0 < last.samples <= BATCH_SIZE
        for rows in run:
            of_samples = [set(rows.part(number, number + 1).values.tolist()) for number in range(rows.samples)]
            assert all(own <= hot and not own <= frozen for own in of_samples)


def test_what_leaves_nothing_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An epoch without hot batches behind the second snapshot, before the run; one without a threshold, in it."""
    samples = drawn_samples(1, 400)
    policy = slipstream_of(tmp_path, samples, drop_percent=50.0, drop_tolerance=1.0)
    training, watched = policy.facts.training, policy._watched
    assert training is not None
    assert watched is not None
    few = replace(policy.settings, first_snapshot=10_000)
    for quiet in (policy.settings, replace(few, drop_percent=0.0)):
        SlipstreamPolicy.prepare(quiet, training)
    assert not caplog.records
    SlipstreamPolicy.prepare(few, training)
    assert "policy.first_snapshot = 10000, policy.between_percent = 10: an epoch has" in caplog.text
    caplog.clear()
    batches, weights = batches_of(policy, samples), np.zeros((watched.rows.size, WIDTH), dtype=np.float32)
    for batch in watched.before:
        policy.see(Sight(0, batch, batch, weights, batches.__getitem__))
    assert "policy.name: epoch 0: no threshold leaves out 50 % of" in caplog.text
    assert policy.keeping(segment_of(len(batches), watched.before[1])) is None


def test_snapshots_of_hot_batches_alone_are_behind_the_first(tmp_path: Path) -> None:
    """There is no segment before it."""
    fae = policy_of(tmp_path, drawn_samples(1, 40), int(OFFSETS[-1]), batch_size=BATCH_SIZE)
    training = fae.facts.training
    assert training is not None

    def before(**own: Any) -> tuple[int, ...]:
        chosen = SlipstreamSettings(hot_rows=int(OFFSETS[-1]), **own)
        watched = SlipstreamPolicy.watched(chosen, training)
        return () if watched is None else watched.before

    assert before(first_snapshot=0, between_percent=0.0) == (1, 2)
    assert before(first_snapshot=1, between_percent=0.0) == (1, 2)
    assert before(first_snapshot=2, between_percent=20.0) == (2, 4)
    assert before(first_snapshot=3, between_percent=20.0) == ()
    assert before(first_snapshot=4, between_percent=0.0) == ()
    assert before(first_snapshot=5, between_percent=0.0) == ()
    many = policy_of(tmp_path, drawn_samples(1, 400), int(OFFSETS[-1]), batch_size=BATCH_SIZE).facts.training
    assert many is not None
    training = many  # 50 hot batches: 45.4, and 45.6 of them
    assert before(first_snapshot=2, between_percent=90.8) == (2, 48)
    assert before(first_snapshot=2, between_percent=91.2) == (2, 49)


def test_the_memory_of_snapshots_is_counted(tmp_path: Path) -> None:
    """Of 32 hot rows, two of them at once; a byte a row of the tables says what is stale."""
    sound = slipstream_of(tmp_path, drawn_samples(1, 400))
    training, window = sound.facts.training, WINDOW
    assert training is not None
    facts = replace(sound.facts, training=replace(training, row_bytes=20))
    plain = FaePolicy(FaeSettings(hot_rows=32), facts).least_bytes(window, 9) + int(OFFSETS[-1])
    assert SlipstreamPolicy(sound.settings, facts).least_bytes(window, 9) == plain + 2 * 32 * 20
    nothing = replace(sound.settings, drop_percent=0.0)
    assert SlipstreamPolicy(nothing, facts).least_bytes(window, 9) == plain


def test_nothing_to_drop_is_fae(tmp_path: Path) -> None:
    samples = drawn_samples(1, 400)
    assert slipstream_of(tmp_path, samples, drop_percent=0.0)._watched is None
    assert slipstream_of(tmp_path, samples, first_snapshot=10_000)._watched is None


def test_some_hot_batches_are_judged(tmp_path: Path) -> None:
    """Of those from the second snapshot on, so many percent, rounded up; others in another epoch."""
    samples, second = drawn_samples(1, 400), 30
    training = slipstream_of(tmp_path, samples).facts.training
    assert training is not None
    hot = read_profile(SlipstreamSettings(hot_rows=32), training).hot_samples
    left = [batch for batch in hot_batches(400 - hot, hot, BATCH_SIZE, 100).tolist() if batch >= second]
    assert left[0] == second
    assert len(left) > 8

    def judged(percent: float, epoch: int = 0) -> list[int]:
        policy = slipstream_of(tmp_path, samples, judged_percent=percent)
        return policy._judged(Sight(epoch, second, second, np.empty((0, WIDTH), np.float32), lambda _: samples))

    assert judged(100.0) == left
    some = judged(6.01 / len(left) * 100)
    assert some == sorted(set(some))
    assert set(some) < set(left)
    assert len(some) == len(judged(7.0 / len(left) * 100)) == 7
    assert judged(6.01 / len(left) * 100, epoch=1) != some == judged(6.01 / len(left) * 100)


class Late(SlipstreamPolicy):
    """Takes the last snapshot of the epoch before for the first."""

    def see(self, sight: Sight) -> dict[str, Any]:
        watched = self._watched
        assert watched is not None
        if sight.batch == watched.before[0]:
            self._first = np.zeros_like(sight.weights)
            return {"first": self._first}
        return super().see(sight)


class Anything(SlipstreamPolicy):
    """Leaves out a sample with any stale row."""

    def keep(self, rows: Bags) -> np.ndarray | None:
        self.settings = replace(self.settings, stale_look_ups=1)
        return super().keep(rows)


class ColdToo(SlipstreamPolicy):
    """Leaves out samples of cold batches, too."""

    def keep(self, rows: Bags) -> np.ndarray | None:
        self._is_hot = np.ones_like(self._is_hot)
        return super().keep(rows)


@pytest.mark.parametrize("kind", [Late, Anything, ColdToo])
def test_broken_rules_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[SlipstreamPolicy]
) -> None:
    check: Callable[[Path], None] = test_stale_rows_are_those_that_did_not_move
    check(tmp_path)
    monkeypatch.setitem(globals(), "SlipstreamPolicy", kind)
    with pytest.raises(AssertionError):
        check(tmp_path)


WRONG = [
    {"drop_percent": 100.0},
    {"drop_tolerance": 0.0},
    {"first_snapshot": -1},
    {"between_percent": 100.0},
    {"judged_percent": 0.0},
    {"stale_look_ups": -1},
    {"share_percent": 0},
    {"replay": "run", "drop_percent": 0.0},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"^{next(iter(wrong))} = "):
        SlipstreamSettings(**wrong)
