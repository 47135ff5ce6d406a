"""The metrics against definitions that are slow and plain."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.models.click_metrics import log_loss, roc_auc

few_scores = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.25, 1e-300, 3.0, math.inf])
samples = st.lists(st.tuples(st.integers(0, 1), st.one_of(few_scores, st.floats(allow_nan=False))), max_size=40)


@given(samples)
def test_auc_is_the_counted_share_of_pairs(pairs: list[tuple[int, float]]) -> None:
    clicks = [score for label, score in pairs if label]
    others = [score for label, score in pairs if not label]
    auc = roc_auc([label for label, _ in pairs], [score for _, score in pairs])
    if not clicks or not others:
        assert math.isnan(auc)
        return
    twice_right = sum(2 * (click > other) + (click == other) for click in clicks for other in others)
    assert auc == float(Fraction(twice_right, 2 * len(clicks) * len(others)))


@given(samples)
def test_auc_of_negated_scores_is_the_complement(pairs: list[tuple[int, float]]) -> None:
    labels = np.array([label for label, _ in pairs])
    scores = np.array([score for _, score in pairs])
    auc, reverse = roc_auc(labels, scores), roc_auc(labels, -scores)
    assert (math.isnan(auc) and math.isnan(reverse)) or abs(auc + reverse - 1) < 1e-15


def test_auc_does_not_overflow_on_a_million_pairs_of_ties() -> None:
    labels = np.tile([0, 1], 500_000).astype(np.float32)
    assert roc_auc(labels, np.zeros(len(labels), np.float32)) == 0.5
    assert roc_auc(labels, labels) == 1.0
    assert roc_auc(labels, -labels) == 0.0


def test_auc_of_diverged_scores_is_nan() -> None:
    assert math.isnan(roc_auc([0, 1], [0.0, math.nan]))


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(-30, 30)), min_size=1, max_size=40))
def test_log_loss_is_the_mean_of_the_definition(pairs: list[tuple[int, float]]) -> None:
    losses = [math.log1p(math.exp(-logit if label else logit)) for label, logit in pairs]
    found = log_loss([label for label, _ in pairs], [logit for _, logit in pairs])
    assert found == pytest.approx(math.fsum(losses) / len(losses), rel=1e-14)


def test_log_loss_is_stable_far_from_zero() -> None:
    assert log_loss([1, 0], [1000.0, -1000.0]) == 0.0
    assert log_loss([0, 1], [1000.0, -1000.0]) == 1000.0
    assert log_loss([1], [40.0]) == pytest.approx(math.exp(-40), rel=1e-12)
    assert log_loss([1, 0], [math.inf, -math.inf]) == 0.0
    assert log_loss([0], [math.inf]) == math.inf
    assert math.isnan(log_loss([], []))
    assert math.isnan(log_loss([1], [math.nan]))


@pytest.mark.parametrize("metric", [roc_auc, log_loss])
def test_malformed_inputs_are_refused(metric: Callable[[object, object], float]) -> None:
    with pytest.raises(ValueError, match="same length"):
        metric([0, 1], [0.0])
    with pytest.raises(ValueError, match="same length"):
        metric([[0, 1]], [[0.0, 1.0]])
    with pytest.raises(ValueError, match="0 or 1"):
        metric([0, 2], [0.0, 1.0])
    with pytest.raises(ValueError, match="0 or 1"):
        metric([0, math.nan], [0.0, 1.0])
