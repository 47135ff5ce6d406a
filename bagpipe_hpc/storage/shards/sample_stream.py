"""Samples in the order in which they are trained, read from the shards in large contiguous blocks."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.sample_order import SampleOrder


class SampleStream:
    """One column group of a split (sparse ids, dense features or labels) in a given order.

    Meant for ranges that move forward: the block read last is kept, so each block is read once.

    Args:
        read: reads samples `first` up to `last` of the split, array `[last - first, ...]`.
        order: the epoch's order.

    Raises:
        PlanError: the order has not as many samples as it says.
    """

    def __init__(self, read: Callable[[int, int], NDArray[Any]], order: SampleOrder) -> None:
        self._read = read
        self._order = order
        self._blocks = order.blocks()
        sizes = [order.block_samples(block) for block in self._blocks.tolist()]
        self._bounds = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        if self._bounds[-1] != order.rows:
            raise PlanError(f"the blocks of the policy's order have {self._bounds[-1]} of {order.rows} samples")
        self._kept: tuple[int, NDArray[Any]] | None = None

    def read(self, first: int, last: int) -> NDArray[Any]:
        """Samples at positions `first` up to `last` of the order, `[last - first, ...]`; a copy."""
        start = min(int(np.searchsorted(self._bounds, first, side="right")), len(self._blocks)) - 1
        stop = max(start + 1, int(np.searchsorted(self._bounds, last, side="left")))
        pieces = [self._piece(place, first, last) for place in range(start, min(stop, len(self._blocks)))]
        return np.concatenate(pieces)

    def _piece(self, place: int, first: int, last: int) -> NDArray[Any]:
        begin = int(self._bounds[place])
        return self._block(place)[max(0, first - begin) : max(0, last - begin)]

    def _block(self, place: int) -> NDArray[Any]:
        if self._kept is None or self._kept[0] != place:
            block = int(self._blocks[place])
            inside = self._order.inside_block(block)
            if inside.size != (counted := self._order.block_samples(block)):
                raise PlanError(f"the policy's order uses {inside.size} samples of block {block}, and says {counted}")
            self._kept = (place, self._read(*self._order.block_range(block))[inside])
        return self._kept[1]
