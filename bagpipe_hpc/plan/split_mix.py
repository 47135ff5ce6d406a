"""SplitMix64 as a hash of counters (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Pure.

What is drawn by number and not in turn is the same whoever draws it, in whatever order.
"""

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""What a stream's counter goes up by. Sums and products with it are modulo 2**64: let NumPy ignore overflow."""


def mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function: uint64 of any shape to the same shape."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
