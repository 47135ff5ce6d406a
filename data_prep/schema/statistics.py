"""Statistics of numbers that are exact, whatever the order of the numbers: means, deviations and quantiles.

Sums are computed in integers (`ExactSum`), and a quantile is one of the numbers themselves, found by counting keys, 16
bits at a time. So memory is constant, and the result does not depend on ranks, threads and blocks.

Shapes: `n` numbers of a block.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.evaluation.exact_sum import ExactSum

Blocks = Callable[[], Iterable[NDArray[np.float64]]]
"""Gives finite numbers, some at a time from the beginning; the same ones at each call."""

_DIGIT_BITS = 16
_DIGITS = 4
_SPLIT = 2.0**27 + 1
_SIGN = np.uint64(1 << 63)


def moments(blocks: Blocks) -> tuple[int, float, float]:
    """How many numbers there are, their mean and deviation; without numbers 0 and 1, and 1 where all are equal."""
    count, total, squares = 0, ExactSum(), ExactSum()
    for numbers in blocks():
        count += len(numbers)
        total.add(numbers)
        add_squares(squares, numbers)
    if not count:
        return 0, 0.0, 1.0
    return count, total.divided_by(count), math.sqrt(total.variance(squares, count)) or 1.0


def bounds(blocks: Blocks) -> tuple[float, float]:
    """The least and the largest number; 0 and 0 where there are none."""
    found = [(float(numbers.min()), float(numbers.max())) for numbers in blocks() if len(numbers)]
    return min((least for least, _ in found), default=0.0), max((most for _, most in found), default=0.0)


def add_squares(total: ExactSum, numbers: NDArray[np.float64]) -> None:
    """Add the squares of numbers `[n]`, of at most 2 ** 500, without rounding: halves of 26 bits have exact products.

    The halves are those of Dekker: A floating-point technique for extending the available precision, 1971.
    """
    scaled = numbers * _SPLIT
    upper = scaled - (scaled - numbers)
    lower = numbers - upper
    for product in (upper * upper, 2 * upper * lower, lower * lower):
        total.add(product)


def quantiles(blocks: Blocks, intervals: int) -> list[float]:
    """Ascending numbers that cut all numbers into intervals of about the same size.

    Args:
        blocks: gives the numbers.
        intervals: how many are wanted; fewer result where many numbers are equal.

    Returns:
        The distinct numbers at the ranks `k * count // intervals`, k = 1 .. intervals - 1, of all numbers in ascending
        order. Each begins an interval.
    """
    count = sum(len(numbers) for numbers in blocks())
    found = at_ranks(blocks, [k * count // intervals for k in range(1, intervals)] if count else [])
    return [bound for number, bound in enumerate(found) if number == 0 or bound != found[number - 1]]


def at_ranks(blocks: Blocks, ranks: Sequence[int]) -> list[float]:
    """The numbers at some ranks, from 0, of all numbers in ascending order."""
    # The digits of each number's key are found in turn: (digits known so far, rank among the numbers that have these).
    wanted = [(0, rank) for rank in ranks]
    for digit in range(_DIGITS if wanted else 0):
        prefixes = np.unique(np.array([prefix for prefix, _ in wanted], np.uint64))
        counted = np.zeros((len(prefixes), 1 << _DIGIT_BITS), np.int64)
        shift = np.uint64((_DIGITS - 1 - digit) * _DIGIT_BITS)
        for numbers in blocks():
            keys = _keys(numbers) >> shift
            known, digits = keys >> np.uint64(_DIGIT_BITS), keys & np.uint64((1 << _DIGIT_BITS) - 1)
            places = np.minimum(np.searchsorted(prefixes, known), len(prefixes) - 1)
            ours = prefixes[places] == known
            np.add.at(counted, (places[ours], digits[ours].astype(np.int64)), 1)
        below = np.cumsum(counted, axis=1)
        found = []
        for prefix, rank in wanted:
            row = below[np.searchsorted(prefixes, np.uint64(prefix))]
            place = int(np.searchsorted(row, rank, side="right"))
            found.append(((prefix << _DIGIT_BITS) | place, rank - (int(row[place - 1]) if place else 0)))
        wanted = found
    numbers_found: list[float] = _numbers_of(np.array([key for key, _ in wanted], np.uint64)).tolist()
    return numbers_found


def _keys(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Integers `[n]` that sort as the finite numbers `[n]` do; -0 counts as 0."""
    bits = (numbers + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _numbers_of(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    return np.where(keys & _SIGN, keys & ~_SIGN, ~keys).view(np.float64)
