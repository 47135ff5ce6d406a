"""Which rows are stale, which samples that leaves out, and how a threshold is found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.policies.slipstream.stale import find_threshold, left_out, movement, sample_keys
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import bags_of, drawn_lengths


def bags(seed: int, most: int) -> Bags:
    rng = np.random.default_rng(seed)
    return bags_of(rng.integers(0, 40, (30, 3, max(1, most))), drawn_lengths(rng, 30, 3, most))


@settings(max_examples=share_of(40), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 1, 4]), st.integers(0, 4), st.floats(0, 1))
def test_a_sample_is_left_out_if_enough_of_its_rows_are_stale(
    seed: int, most: int, needed: int, threshold: float
) -> None:
    rows, moved = bags(seed, most), np.random.default_rng(seed).random(40).astype(np.float32)
    found = sample_keys(rows, moved[rows.values], needed) < np.float32(threshold)
    for sample in range(rows.samples):
        own = rows.take(np.asarray([sample])).values
        stale = int((moved[own] < np.float32(threshold)).sum())
        assert found[sample] == (len(own) > 0 and stale >= (needed or len(own)) and stale > 0)


def test_the_key_of_a_sample_is_that_of_its_own_look_ups() -> None:
    """Samples with three, no, one and two look-ups."""
    rows = Bags.ragged(np.arange(6), np.asarray([[3], [0], [1], [2]]))
    moved = np.asarray([0.3, 0.1, 0.2, 0.4, 0.6, 0.5], dtype=np.float32)
    never = np.float32(np.inf)
    for needed, keys in ((0, [0.3, never, 0.4, 0.6]), (1, [0.1, never, 0.4, 0.5]), (2, [0.2, never, never, 0.6])):
        assert sample_keys(rows, moved, needed).tolist() == np.asarray(keys, dtype=np.float32).tolist()


@settings(max_examples=share_of(40), deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.1), st.floats(0, 0.1))
def test_a_larger_threshold_leaves_out_no_fewer(seed: int, one: float, other: float) -> None:
    keys = (np.random.default_rng(seed).random(200) * 0.15).astype(np.float32)
    assert left_out(keys, min(one, other)) <= left_out(keys, max(one, other))


@settings(max_examples=share_of(40), deadline=None)
@given(st.integers(0, 2**32), st.floats(0.05, 0.9), st.floats(0.02, 0.1))
def test_the_threshold_leaves_out_what_is_wanted(seed: int, drop: float, tolerance: float) -> None:
    """Of the judged samples, and of others like them but for chance."""
    keys = (np.random.default_rng(seed).random(4000) * 0.09).astype(np.float32)
    threshold = find_threshold(keys[:2000], drop, tolerance)
    assert 0 < threshold < 0.1
    assert abs(left_out(keys[:2000], threshold) - drop) <= tolerance + 1e-9
    assert abs(left_out(keys[2000:], threshold) - drop) <= tolerance + 0.07  # more than 4 sigma


@pytest.mark.parametrize("key", [0.0, 0.2, np.inf])
def test_without_a_threshold_nothing_is_stale(key: float) -> None:
    """All samples at once, or none, are not the share that is wanted."""
    assert find_threshold(np.full(50, key, dtype=np.float32), 0.3, 0.08) == 0.0
    assert find_threshold(np.empty(0, dtype=np.float32), 0.3, 0.08) == 0.0


def test_where_the_search_for_a_threshold_begins_and_ends() -> None:
    """By hand: with the middle; at a share just within the tolerance, or after 25 rounds."""
    spread = np.asarray([0.01, 0.06, 0.06, 0.06], dtype=np.float32)
    assert find_threshold(spread, 0.5, 0.25) == find_threshold(spread, 0.125, 0.125) == 0.05
    above = np.linspace(0.09, 0.12, 100, dtype=np.float32)  # a third of them below 0.1
    assert find_threshold(above, 0.2, 0.02) > 0.09
    assert find_threshold(above, 0.5, 0.02) == 0.0
    last = 0.1 / 2**25
    for least, found in ((1.5 * last, last), (0.75 * last, 0.0)):
        assert find_threshold(np.asarray([0.0, least], dtype=np.float32), 0.5, 0.1) == found


def test_a_sample_is_left_out_if_its_rows_moved_by_less_than_the_threshold() -> None:
    assert left_out(np.asarray([0.03125, 0.0625, 0.125, np.inf], dtype=np.float32), 0.0625) == 0.25
    assert left_out(np.empty(0, dtype=np.float32), 0.0625) == 0


def test_movement_is_the_largest_change_of_a_weight() -> None:
    first = np.asarray([[0, 0], [1, 1], [2, 2]], dtype=np.float32)
    second = np.asarray([[0, 0], [1, 0.25], [2.5, 2.25]], dtype=np.float32)
    assert movement(first, second).tolist() == [0.0, 0.75, 0.5]
