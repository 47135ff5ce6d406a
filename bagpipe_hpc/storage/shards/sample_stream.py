"""Samples in the order in which they are trained, read from the shards in large contiguous blocks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags, joined
from bagpipe_hpc.plan.sample_order import SampleOrder

Columns = TypeVar("Columns", bound=NDArray[Any] | Bags)
"""A value or more of each sample: an array `[samples, ...]`, or bags."""


class SampleStream(Generic[Columns]):
    """One column group of a split (look-ups, dense features or labels) in a given order.

    Meant for ranges that move forward: the block read last is kept, so each block is read once.

    Args:
        read: reads samples `first` up to `last` of the split, an array `[last - first, ...]` or bags.
        order: the epoch's order.

    Raises:
        PlanError: the order has not as many samples as it says.
    """

    def __init__(self, read: Callable[[int, int], Columns], order: SampleOrder) -> None:
        self._read: Callable[[int, int], Any] = read
        self._order = order
        self._blocks = order.blocks()
        sizes = [order.block_samples(block) for block in self._blocks.tolist()]
        self._bounds = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        if self._bounds[-1] != order.rows:
            raise PlanError(f"the blocks of the policy's order have {self._bounds[-1]} of {order.rows} samples")
        self._kept: tuple[int, Any] | None = None

    def read(self, first: int, last: int) -> Columns:
        """Samples at positions `first` up to `last` of the order, `last - first` of them; a copy."""
        start = min(int(np.searchsorted(self._bounds, first, side="right")), len(self._blocks)) - 1
        stop = max(start + 1, int(np.searchsorted(self._bounds, last, side="left")))
        pieces = [self._piece(place, first, last) for place in range(start, min(stop, len(self._blocks)))]
        if not isinstance(pieces[0], Bags):
            return cast("Columns", np.concatenate(pieces))
        whole = joined(pieces)
        return cast("Columns", replace(whole, values=whole.values.copy()) if len(pieces) == 1 else whole)

    def _piece(self, place: int, first: int, last: int) -> Any:
        """A block's samples from `first` on, up to `last` or its end; a view."""
        begin, block = int(self._bounds[place]), self._block(place)
        samples = int(self._bounds[place + 1]) - begin
        first, last = (min(max(0, position - begin), samples) for position in (first, last))
        return block.part(first, last) if isinstance(block, Bags) else block[first:last]

    def _block(self, place: int) -> Any:
        if self._kept is None or self._kept[0] != place:
            block = int(self._blocks[place])
            inside = self._order.inside_block(block)
            if inside.size != (counted := self._order.block_samples(block)):
                raise PlanError(f"the policy's order uses {inside.size} samples of block {block}, and says {counted}")
            read = self._read(*self._order.block_range(block))
            self._kept = (place, read.take(inside) if isinstance(read, Bags) else read[inside])
        return self._kept[1]
