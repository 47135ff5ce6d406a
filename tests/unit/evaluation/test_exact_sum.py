"""Sums that are rounded once, against fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.evaluation import exact_sum
from bagpipe_hpc.evaluation.exact_sum import ExactSum

numbers = st.lists(st.floats(-1e300, 1e300) | st.sampled_from([5e-324, -5e-324, 1e300, -1e300, 0.1, -0.0]), max_size=30)


def sum_of(values: list[float]) -> ExactSum:
    total = ExactSum()
    total.add(np.array(values, dtype=np.float64))
    return total


@given(numbers, st.integers(0, 30), st.integers(1, 7))
def test_a_sum_is_rounded_once_however_it_is_cut(values: list[float], cut: int, count: int) -> None:
    exact = sum(map(Fraction, values), Fraction(0))
    whole, parts = sum_of(values), ExactSum.of([sum_of(values[cut:]), sum_of(values[:cut])])
    assert float(whole) == float(parts) == float(exact)
    assert whole.divided_by(count) == float(exact / count)


def test_more_numbers_than_fit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sum, "_MOST_AT_ONCE", 7)
    values = [0.1 * number for number in range(50)]
    assert float(sum_of(values)) == math.fsum(values)


def test_halves_that_go_together_are_added_without_rounding() -> None:
    """More of them than memory for a test has room for: their number times the largest half stays within float64."""
    longest_half = max(exact_sum._HALF_BITS, exact_sum._MANTISSA_BITS - exact_sum._HALF_BITS)
    assert exact_sum._MOST_AT_ONCE << longest_half <= 1 << exact_sum._MANTISSA_BITS


def test_last_bits_stay_where_the_first_ones_cancel() -> None:
    assert float(sum_of([1 + 2.0**-52, -1.0])) == 2.0**-52


def test_a_sum_below_zero_is_not_zero() -> None:
    assert [bool(sum_of(values)) for values in ([-0.5], [0.5], [0.5, -0.5], [])] == [True, True, False, False]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        sum_of([1.0, value])
