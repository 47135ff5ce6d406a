"""Every measure against its definition, slow and plain; and the same digits however samples are shared out."""

import math
import tracemalloc
from dataclasses import asdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.evaluation.click_evaluation import ClickEvaluation, Evaluation, evaluation_bytes, measure
from bagpipe_hpc.evaluation.label_evaluations import LabelEvaluations
from bagpipe_hpc.evaluation.pairs import MOST_GROUPS, GroupPairs, PairCounts, entries, joined, pairs_by_group
from bagpipe_hpc.evaluation.peers import Alone
from tests.unit.evaluation.peers_in_threads import ThreadPeer, on_peers

few_logits = st.sampled_from([-3.5, -1.0, -0.0, 0.0, 0.25, 2.0**-149, -(2.0**-149), 2.0, 2.0**127, -(2.0**127)])
any_logits = st.floats(width=32, allow_nan=False, allow_infinity=False)
Sample = tuple[int, float, int]
samples_of = st.lists(st.tuples(st.integers(0, 1), few_logits | any_logits, st.sampled_from([0, 1, 2, 2**31 - 1])))


def twice_right_pairs(samples: list[Sample]) -> int:
    clicks = [logit for label, logit, _ in samples if label]
    others = [logit for label, logit, _ in samples if not label]
    return sum(2 * (click > other) + (click == other) for click in clicks for other in others)


def plain_auc(samples: list[Sample]) -> Fraction | None:
    clicks = sum(label for label, _, _ in samples)
    pairs = clicks * (len(samples) - clicks)
    return Fraction(twice_right_pairs(samples), 2 * pairs) if pairs else None


def plain_loss(label: int, logit: float) -> float:
    z = -logit if label else logit
    return math.log1p(math.exp(z)) if z < 0 else z + math.log1p(math.exp(-z))


def arrays(samples: list[Sample]) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    labels, logits, groups = zip(*samples, strict=True) if samples else ((), (), ())
    return np.array(labels, np.float32), np.array(logits, np.float32), np.array(groups, np.int64)


def shared(samples: list[Sample], owners: list[int], count: int, *, exact: bool, by_group: bool) -> list[Evaluation]:
    """The evaluation on each of some peers that have the samples of their own, given one at a time."""

    def work(number: int, peer: ThreadPeer) -> Evaluation:
        own = ClickEvaluation(is_exact=exact, by_group=by_group)
        for sample, owner in zip(samples, owners, strict=True):
            if owner == number:
                label, logit, group = arrays([sample])
                own.add(label, logit, group if by_group else None)
        return own.finish(peer)

    return on_peers(count, work)


@given(samples_of)
def test_measures_are_those_of_their_definitions(samples: list[Sample]) -> None:
    found = measure(*arrays(samples)[:2])
    count, clicks = len(samples), sum(label for label, _, _ in samples)
    assert found.samples == count
    auc = plain_auc(samples)
    assert math.isnan(found.auc) if auc is None else found.auc == float(auc)
    assert found.auc_error == 0.0
    if not count:
        assert math.isnan(found.log_loss)
        return
    loss = math.fsum(plain_loss(label, logit) for label, logit, _ in samples) / count
    assert found.log_loss == pytest.approx(loss, rel=1e-13)
    if 0 < clicks < count:
        rate = clicks / count
        entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
        assert found.normalised_entropy == pytest.approx(loss / entropy, rel=1e-12)
    else:
        assert math.isnan(found.normalised_entropy)
    predicted = math.fsum(0.0 if logit < -700 else 1 / (1 + math.exp(-logit)) for _, logit, _ in samples)
    if clicks:
        assert found.calibration == pytest.approx(predicted / clicks, rel=1e-13, abs=1e-300)
    else:
        assert math.isnan(found.calibration)


@given(samples_of)
def test_the_area_by_group_weighs_groups_with_both_labels_by_their_samples(samples: list[Sample]) -> None:
    own = ClickEvaluation(by_group=True)
    own.add(*arrays(samples))
    found = own.finish(Alone())
    total, weight = Fraction(0), 0
    for group in {group for _, _, group in samples}:
        members = [sample for sample in samples if sample[2] == group]
        if (auc := plain_auc(members)) is not None:
            total, weight = total + len(members) * auc, weight + len(members)
    assert found.group_auc is not None
    assert math.isnan(found.group_auc) if not weight else found.group_auc == pytest.approx(float(total / weight))
    plain = asdict(measure(*arrays(samples)[:2])) | {"group_auc": found.group_auc}
    np.testing.assert_equal(asdict(found), plain)


@given(samples_of.filter(bool), st.integers(2, 4), st.booleans(), st.data())
def test_all_peers_find_what_one_finds_digit_for_digit(
    samples: list[Sample], count: int, exact: bool, data: st.DataObject
) -> None:
    """Whoever has which samples; some peers may have none."""
    owners = data.draw(st.lists(st.integers(0, count - 1), min_size=len(samples), max_size=len(samples)))
    alone = ClickEvaluation(is_exact=exact, by_group=exact)
    alone.add(*arrays(samples)[: 3 if exact else 2], *(() if exact else (None,)))
    expected = asdict(alone.finish(Alone()))
    for found in shared(samples, owners, count, exact=exact, by_group=exact):
        np.testing.assert_equal(asdict(found), expected)


@given(samples_of)
def test_a_histogram_says_how_far_it_may_be_off(samples: list[Sample]) -> None:
    binned = ClickEvaluation(is_exact=False)
    binned.add(*arrays(samples)[:2])
    found, exact = binned.finish(Alone()), measure(*arrays(samples)[:2])
    if math.isnan(exact.auc):
        assert math.isnan(found.auc)
        return
    assert abs(found.auc - exact.auc) <= found.auc_error + 1e-15
    assert (found.log_loss, found.calibration) == (exact.log_loss, exact.calibration)


def test_the_error_of_a_histogram_is_reached_and_small() -> None:
    """Two logits of one bin may be in either order, which it cannot know; among many its error is far below 1e-3."""
    near = [1.0, float(np.nextafter(np.float32(1), np.float32(2)))]
    for low, high in (near, near[::-1]):
        binned = ClickEvaluation(is_exact=False)
        binned.add(np.array([0, 1], np.float32), np.array([low, high], np.float32))
        found = binned.finish(Alone())
        assert (found.auc, found.auc_error) == (0.5, 0.5)
    rng = np.random.default_rng(5)
    logits = rng.normal(-1, 1, 20_000).astype(np.float32)
    labels = (rng.random(20_000) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    binned = ClickEvaluation(is_exact=False)
    binned.add(labels, logits)
    found = binned.finish(Alone())
    assert 0 < found.auc_error < 2e-4
    assert 0 < abs(found.auc - measure(labels, logits).auc) <= found.auc_error


def test_counts_of_many_pairs_do_not_overflow() -> None:
    labels = np.tile([0, 1], 500_000).astype(np.float32)
    for logits, auc in ((np.zeros_like(labels), 0.5), (labels, 1.0), (-labels, 0.0)):
        assert measure(labels, logits).auc == auc


def test_the_last_group_fits_into_64_bits() -> None:
    zeros, groups = np.zeros(2, np.float32), np.array([0, MOST_GROUPS - 1])
    assert pairs_by_group(PairCounts.of(entries(zeros, zeros, groups)))[0].tolist() == groups.tolist()


@pytest.mark.parametrize("samples", [1 << 31, (1 << 32) - 2, 1 << 32, 1 << 40])
@pytest.mark.parametrize("bounds", [(0, 3), (0, 1, 3)], ids=["one counts all", "two share them"])
def test_pairs_of_any_number_of_samples_are_counted(samples: int, bounds: tuple[int, ...]) -> None:
    """Of three logits, most pairs in the right order; twice their number is beyond 64 bits from 2**32 samples on."""
    half = samples // 2
    clicks, others = [0, half - 5, 5], [half - 7, 4, 3]
    counts = PairCounts(np.arange(3, dtype=np.uint64), np.array(clicks), np.array(others))
    pieces = []
    for part in pairwise(bounds):
        (fields,) = zip(*pairs_by_group(counts.between(*part)), strict=True)
        pieces.append(GroupPairs(*map(int, fields)))
    (whole,) = joined(pieces)
    twice = sum(
        clicks[click] * others[other] * (2 * (click > other) + (click == other))
        for click in range(3)
        for other in range(3)
    )
    assert (whole.clicks, whole.others, whole.twice_right) == (sum(clicks), sum(others), twice)
    assert whole.tied == 4 * clicks[1] + 3 * clicks[2]


def test_many_calls_are_one_large_one() -> None:
    """Samples are counted when enough have come, and at the end."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 150_000).astype(np.float32)
    logits = rng.normal(size=150_000).astype(np.float32)
    pieces = ClickEvaluation()
    for first in range(0, 150_000, 1000):
        pieces.add(labels[first : first + 1000], logits[first : first + 1000])
    assert pieces.finish(Alone()) == measure(labels, logits)


def test_keys_are_shared_out_evenly() -> None:
    """No peer gets much more than twice its share, though one has all the high logits."""
    logits = np.sort(np.random.default_rng(3).normal(size=40_000)).astype(np.float32)

    def work(number: int, peer: ThreadPeer) -> int:
        own = ClickEvaluation()
        part = logits[number * 10_000 : (number + 1) * 10_000]
        own.add(np.ones_like(part), part)
        own.finish(peer)
        return peer.got

    got = on_peers(4, work)
    assert sum(got) == pytest.approx(40_000, abs=100)
    assert max(got) <= 20_100


@given(st.lists(st.tuples(st.integers(0, 1), any_logits, st.sampled_from([0.0, 0.5, 1.0, 3.0])), min_size=1))
def test_weights_weigh_means_and_not_areas(samples: list[tuple[int, float, float]]) -> None:
    labels, logits, weights = (np.array(column, np.float32) for column in zip(*samples, strict=True))
    own = ClickEvaluation()
    own.add(labels, logits, weights=weights)
    found, plain = own.finish(Alone()), measure(labels, logits)
    np.testing.assert_equal((found.samples, found.auc), (plain.samples, plain.auc))
    copies = np.repeat(np.arange(len(samples)), (2 * weights).astype(int))  # each as often as its weight says
    repeated = measure(labels[copies], logits[copies])
    for name in ("log_loss", "normalised_entropy", "calibration"):
        assert getattr(found, name) == pytest.approx(getattr(repeated, name), rel=1e-12, abs=1e-300, nan_ok=True)
    even = ClickEvaluation()
    even.add(labels, logits, weights=np.ones_like(labels))
    np.testing.assert_equal(asdict(even.finish(Alone())), asdict(plain))


def test_several_labels_are_evaluated_each_by_itself() -> None:
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2, (50, 2)).astype(np.float32)
    logits = rng.normal(size=(50, 2)).astype(np.float32)
    groups, weights = rng.integers(0, 4, 50), rng.random(50, dtype=np.float32)
    both = LabelEvaluations(("click", "buy"), by_group=True)
    both.add(labels, logits, groups, weights)
    found = both.finish(Alone())
    assert list(found) == ["click", "buy"]
    for column, name in enumerate(found):
        one = LabelEvaluations((name,), by_group=True)
        one.add(labels[:, column], logits[:, column], groups, weights)
        assert one.finish(Alone()) == {name: found[name]}
    with pytest.raises(ValueError, match="argument"):
        LabelEvaluations(("a", "b", "c")).add(labels, logits)


def test_log_loss_far_from_zero_and_of_sure_predictions() -> None:
    def loss(labels: list[int], logits: list[float]) -> float:
        return measure(labels, logits).log_loss

    assert loss([1, 0], [1000.0, -1000.0]) == 0.0
    assert loss([0, 1], [1000.0, -1000.0]) == 1000.0
    assert loss([1], [40.0]) == pytest.approx(math.exp(-40), rel=1e-12)


@pytest.mark.parametrize(
    ("labels", "logits", "problem"),
    [
        ([0, 1], [0.0], "same length"),
        ([[0, 1]], [[0.0, 1.0]], "same length"),
        ([0, 2], [0.0, 1.0], "0 or 1"),
        ([0, math.nan], [0.0, 1.0], "0 or 1"),
        ([0, 1], [0.0, math.nan], "finite"),
        ([0, 1], [0.0, math.inf], "finite"),
    ],
)
def test_malformed_samples_are_refused(labels: list[float], logits: list[float], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        measure(labels, logits)


def test_areas_by_group_are_exact_or_refused() -> None:
    with pytest.raises(ValueError, match="exact"):
        ClickEvaluation(is_exact=False, by_group=True)


@pytest.mark.parametrize("groups", [0, 1000, 1 << 30])
def test_it_takes_no_more_memory_than_is_checked(groups: int) -> None:
    """Most where each sample has a group of its own, as with the ids of users."""
    samples, part, rng = 400_000, 50_000, np.random.default_rng(0)
    whole = ClickEvaluation(by_group=groups > 0)
    tracemalloc.start()
    try:
        for _ in range(0, samples, part):
            labels, logits = (rng.random(part) < 0.3).astype(np.float32), rng.normal(size=part).astype(np.float32)
            whole.add(labels, logits, rng.integers(0, groups, part) if groups else None)
        whole.finish(Alone())
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes <= evaluation_bytes(samples, 1, is_exact=True, by_group=groups > 0)
