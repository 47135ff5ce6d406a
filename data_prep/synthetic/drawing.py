"""Functions with which all kinds of synthetic rows are drawn.

Shapes: `n` rows.
"""

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 65536
"""Rows that are drawn together. Part of each kind: another value gives other rows for the same seed."""


def popularity(ids: int, zipf: float) -> NDArray[np.float64]:
    """Cumulative probabilities of ids by rank, float64 `[ids]`: that of a rank is proportional to rank ** -zipf."""
    shares = np.cumsum(np.arange(1, ids + 1, dtype=np.float64) ** -zipf)
    cumulative: NDArray[np.float64] = shares / shares[-1]
    return cumulative


def intercept_of(log_odds: NDArray[np.float64], rate: float) -> float:
    """The constant that makes `rate` the mean probability of rows with such log-odds `[n]`, by bisection."""
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        if sigmoid(log_odds + middle).mean() < rate:
            low = middle
        else:
            high = middle
    return middle


def sigmoid(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities; through tanh, which does not overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * log_odds)
