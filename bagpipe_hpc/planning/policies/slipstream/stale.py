"""Which hot rows are stale, and which samples look up as many of them as are asked for. Pure.

Legend: `n` samples, `V` look-ups of them.
"""

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags

_LARGEST = 0.1
"""The largest threshold."""
_MOST_ROUNDS = 25
"""Most rounds of the bisection."""
NEVER = np.inf
"""Key of a sample that no threshold leaves out."""

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]


def movement(first: Floats, second: Floats) -> Floats:
    """How far rows have moved between two snapshots: the largest change of a weight, float32 `[rows]`.

    Args:
        first: weights, finite float32 `[rows, D]`.
        second: the same rows later.
    """
    with np.errstate(over="ignore"):  # infinitely far
        moved: Floats = np.abs(second - first).max(axis=1)
    return moved


def sample_keys(bags: Bags, moved: Floats, stale_look_ups: int) -> Floats:
    """For each sample the number that a threshold must exceed for the sample to be left out, float32 `[n]`.

    A row is stale if it has moved by less than the threshold. So the key is the k-th smallest movement of a sample's
    look-ups; with k = 0 the largest. A sample with fewer look-ups than k, or with none, stays.

    Args:
        bags: the samples' look-ups; their values do not matter.
        moved: movement of the row of each look-up, float32 `[V]`.
        stale_look_ups: k.
    """
    starts = bags.starts(np.arange(bags.samples + 1))
    counts = np.diff(starts)
    by_sample = moved[np.lexsort((moved, bags.sample_of_value))]
    wanted = np.full(bags.samples, stale_look_ups) if stale_look_ups else counts
    can = (counts >= wanted) & (wanted > 0)
    keys = np.full(bags.samples, NEVER, dtype=np.float32)
    keys[can] = by_sample[starts[:-1][can] + wanted[can] - 1]
    return keys


def find_threshold(keys: Floats, drop: float, tolerance: float) -> float:
    """The movement below which rows are stale, found by bisection so that about a share of the samples is left out.

    Args:
        keys: keys of judged samples, float32 `[n]`.
        drop: the share that is wanted.
        tolerance: how far the share may be from that.

    Returns:
        The threshold; 0, so that no row is stale, where 25 rounds find none.
    """
    low, high = 0.0, _LARGEST
    for _ in range(_MOST_ROUNDS):
        middle = (low + high) / 2
        share = left_out(keys, middle)
        if share < drop - tolerance:
            low = middle
        elif share > drop + tolerance:
            high = middle
        else:
            return middle
    return 0.0


def left_out(keys: Floats, threshold: float) -> float:
    """Share of samples that a threshold leaves out."""
    return float((keys < threshold).mean()) if keys.size else 0.0
