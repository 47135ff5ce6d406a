"""Samples in the order in which they are trained, read from the shards in large contiguous blocks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags, joined
from bagpipe_hpc.plan.lane_order import LaneOrder
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.plan.section_order import SectionOrder, layout_of

Columns = TypeVar("Columns", bound=NDArray[Any] | Bags)
"""A value or more of each sample: an array `[samples, ...]`, or bags."""


class SampleStream(Generic[Columns]):
    """One column group of a split (dense features, labels or others) in a given order.

    Meant for ranges that move forward: the block that was read last is kept, one for each lane where there are lanes.
    So each block is read once, or once for each piece where several lanes have pieces of it.

    Args:
        read: reads samples `first` up to `last` of the split, an array `[last - first, ...]` or bags.
        order: the epoch's order.

    Raises:
        PlanError: the order has not as many samples as it says.
    """

    def __init__(self, read: Callable[[int, int], Columns], order: SampleOrder | LaneOrder | SectionOrder) -> None:
        self._read: Callable[[int, int], Any] = read
        self._layout = layout_of(order)
        self._lane_of = self._layout.lane_of
        self._kept: dict[int, tuple[int, Any]] = {}

    def read(self, first: int, last: int) -> Columns:
        """Samples at positions `first` up to `last` of the order, `last - first` of them; a copy."""
        pieces: list[Any] = []
        for piece, begin, end in self._layout.parts(first, last):
            samples = self._piece(piece)
            pieces.append(samples.part(begin, end) if isinstance(samples, Bags) else samples[begin:end])
        if not pieces:
            pieces = [self._read(0, 0)]
        if not isinstance(pieces[0], Bags):
            return cast("Columns", np.concatenate(pieces))
        whole = joined(pieces)
        return cast("Columns", replace(whole, values=whole.values.copy()) if len(pieces) == 1 else whole)

    def _piece(self, piece: int) -> Any:
        """A piece's samples in their order; it stays until the lane comes to another."""
        lane = int(self._lane_of[piece])
        kept = self._kept.get(lane)
        if kept is None or kept[0] != piece:
            self._kept.pop(lane, None)  # room for the next one
            inside, read = self._layout.samples(piece), self._read(*self._layout.block_range(piece))
            kept = self._kept[lane] = piece, read.take(inside) if isinstance(read, Bags) else read[inside]
        return kept[1]
