"""Integers as categories: the bucket of an integer is about the square of its logarithm.

The winners of Criteo's Kaggle contest used these (Juan, Zhuang, Chin: 3 Idiots' approach for display advertising,
2014); with them, each negative integer is a category of its own.

Shapes: `n` values.
"""

from decimal import ROUND_CEILING, Context
from itertools import count, takewhile

import numpy as np
from numpy.typing import NDArray

RULE = "0 of x < 0; x + 1 of 0 to 2; 3 + floor(log(x)^2) of x > 2"
"""The bucket of an integer x, in words for the manifest."""


def _first_of_square(square: int) -> int:
    """The least integer whose logarithm's square is `square` or more: exact, so the same on all machines."""
    context = Context(prec=40)
    return int(context.exp(context.sqrt(square)).to_integral_value(ROUND_CEILING))


_FIRST = np.array([0, 1, 2, *takewhile(lambda first: first < 1 << 63, map(_first_of_square, count(1)))], dtype=np.int64)
"""The least integer of each bucket from 1 on, ascending."""


def buckets(integers: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The buckets `[n]` of integers `[n]`, by `RULE`."""
    return np.searchsorted(_FIRST, integers, side="right").astype(np.uint32)
