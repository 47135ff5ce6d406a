"""Sums of float64 numbers without rounding: the order of the numbers, and who adds which of them, changes no bit."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_MANTISSA_BITS = 53
_HALF_BITS = 26
_LOWEST_EXPONENT = -1074 - _MANTISSA_BITS
"""Below that of the last bit of any float64, so that every sum is a whole number of units of 2 to this power."""
_UNIT = 1 << -_LOWEST_EXPONENT
_MOST_AT_ONCE = 1 << 25
"""So many halves of mantissas, below 2**27 each, add up to less than 2**53: float64 adds them without rounding."""


class ExactSum:
    """A sum of finite float64 numbers; numbers that are added to it may be sums as well.

    Mantissas are added as integers, apart for each exponent, and these sums in integers of any length.
    """

    def __init__(self, units: int = 0) -> None:
        self._units = units

    def add(self, values: NDArray[np.float64]) -> None:
        """Add all of some numbers, float64 `[n]`.

        Raises:
            ValueError: one is NaN or infinite.
        """
        for first in range(0, values.size, _MOST_AT_ONCE):
            self._units += _units(values[first : first + _MOST_AT_ONCE])

    @classmethod
    def of(cls, parts: "Iterable[ExactSum]") -> "ExactSum":
        """The sum of sums."""
        return cls(sum(part._units for part in parts))

    @classmethod
    def of_count(cls, count: int) -> "ExactSum":
        """The sum that is this whole number."""
        return cls(count * _UNIT)

    def less(self, other: "ExactSum") -> "ExactSum":
        """The difference of two sums."""
        return ExactSum(self._units - other._units)

    def over(self, other: "ExactSum") -> float:
        """The ratio of two sums, rounded once; NaN over 0."""
        return self._units / other._units if other._units else math.nan

    def divided_by(self, count: int) -> float:
        """The sum over a whole number above 0, rounded once."""
        return self._units / (count * _UNIT)

    def variance(self, squares: "ExactSum", count: int) -> float:
        """Mean squared distance of numbers from their mean, where this is their sum; rounded once.

        Args:
            squares: the sum of their squares.
            count: how many there are, 1 or more.
        """
        return (squares._units * _UNIT * count - self._units**2) / (count * _UNIT) ** 2

    def __float__(self) -> float:
        """The sum, rounded once."""
        return self.divided_by(1)

    def __bool__(self) -> bool:
        """Whether the sum is not 0."""
        return bool(self._units)


def _units(values: NDArray[np.float64]) -> int:
    if not np.isfinite(values).all():
        raise ValueError("only finite numbers have an exact sum")
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, _MANTISSA_BITS).astype(np.int64)
    lowest = int(exponents.min(initial=0))
    upper = np.bincount(exponents - lowest, mantissas >> _HALF_BITS)
    lower = np.bincount(exponents - lowest, mantissas & ((1 << _HALF_BITS) - 1))
    shift = lowest - _MANTISSA_BITS - _LOWEST_EXPONENT
    return sum(
        ((int(upper[place]) << _HALF_BITS) + int(lower[place])) << (shift + int(place))
        for place in np.flatnonzero((upper != 0) | (lower != 0))
    )
