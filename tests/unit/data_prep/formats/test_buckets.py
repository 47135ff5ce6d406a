"""The bucket of an integer is about the square of its logarithm, and exact on every machine."""

import math
from decimal import Context, Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.formats.buckets import buckets

EXACT = Context(prec=60)


def bucket(integer: int) -> int:
    """By the rule, exactly."""
    if integer <= 2:
        return max(integer + 1, 0)
    return 3 + math.floor(EXACT.power(EXACT.ln(Decimal(integer)), 2))


def test_small_integers() -> None:
    assert buckets(np.arange(-3, 9)).tolist() == [0, 0, 0, 1, 2, 3, 4, 4, 5, 6, 6, 7]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 10**6)))
def test_any_integer(integers: list[int]) -> None:
    found = buckets(np.array(integers, dtype=np.int64))
    assert found.dtype == np.uint32
    assert found.tolist() == [bucket(integer) for integer in integers]


def test_both_sides_of_every_bound() -> None:
    """Where a logarithm's square passes a whole number, also of integers that float64 rounds."""
    bounds = [int(EXACT.exp(EXACT.sqrt(Decimal(square)))) for square in range(1, 1908)]
    beside = [integer for integer in bounds + [bound + 1 for bound in bounds] if integer < 1 << 63]
    assert max(beside) > 1 << 62
    assert buckets(np.array(beside)).tolist() == [bucket(integer) for integer in beside]
    assert buckets(np.array([(1 << 63) - 1])).tolist() == [3 + 1906]
