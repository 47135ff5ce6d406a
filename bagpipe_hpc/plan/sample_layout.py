"""Where readers find the samples of an order: in which blocks, and at which places of their orders. Pure.

Legend: `P` pieces of blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.plan.lane_order import LaneOrder
from bagpipe_hpc.plan.sample_order import SampleOrder


class Part(NamedTuple):
    """Neighbouring samples of a piece.

    Attributes:
        piece: number of the piece.
        first: the first of them, from the piece's first sample.
        last: one after the last of them.
    """

    piece: int
    first: int
    last: int


@dataclass(frozen=True)
class SampleLayout:
    """All samples, as they are read: pieces of blocks side by side, lane after lane.

    Without lanes a piece is a block, and samples are used one piece after the other. With lanes each of these is used
    piece after piece, all of them side by side; a block is several pieces where lanes begin or end within it.

    Attributes:
        blocks: the order of blocks, and of the samples in each.
        bounds: where pieces begin, and the end of the last, int64 `[P + 1]`.
        numbers: the block of each piece, int64 `[P]`.
        skipped: how many samples of its block come before it, int64 `[P]`.
        lane_of: the lane of each piece, int64 `[P]`.
        lanes: the lanes; None without.
    """

    blocks: SampleOrder
    bounds: Int64s
    numbers: Int64s
    skipped: Int64s
    lane_of: Int64s
    lanes: LaneOrder | None = None

    @classmethod
    def of(cls, order: SampleOrder | LaneOrder) -> "SampleLayout":
        """The layout of an order.

        Raises:
            PlanError: the order has not as many samples as it says.
        """
        blocks = order.blocks if isinstance(order, LaneOrder) else order
        numbers = blocks.blocks()
        bounds = np.concatenate(([0], np.cumsum(blocks.sizes(numbers), dtype=np.int64)))
        if bounds[-1] != blocks.rows:
            raise PlanError(f"the blocks of the policy's order have {bounds[-1]} of {blocks.rows} samples")
        if not isinstance(order, LaneOrder):
            nothing = np.zeros(len(numbers), dtype=np.int64)
            return cls(blocks, bounds, numbers, nothing, nothing)
        starts = order.starts
        cuts = np.unique(np.concatenate((bounds, starts, starts[:-1] + order.turns)))
        firsts, sizes = cuts[:-1], np.diff(cuts)
        block = np.searchsorted(bounds, firsts, side="right") - 1
        lane = np.searchsorted(starts, firsts, side="right") - 1
        length = starts[lane + 1] - starts[lane]
        turned = starts[lane] + (firsts - starts[lane] - order.turns[lane]) % length
        by_lane = np.argsort(turned)
        ends = np.concatenate(([0], np.cumsum(sizes[by_lane], dtype=np.int64)))
        skipped = (firsts - bounds[block])[by_lane]
        return cls(blocks, ends, numbers[block[by_lane]], skipped, lane[by_lane], order)

    def parts(self, first: int, last: int) -> Iterator[Part]:
        """Where the samples at positions `first` up to `last` of the order are, in this order."""
        for begins, ends in self._runs(first, last):
            pieces = np.searchsorted(self.bounds, begins, side="right") - 1
            for first_piece, at, end in zip(pieces.tolist(), begins.tolist(), ends.tolist(), strict=True):
                piece, begin = first_piece, at
                while begin < end:
                    origin, stop = int(self.bounds[piece]), int(self.bounds[piece + 1])
                    if begin < stop:
                        yield Part(piece, begin - origin, min(end, stop) - origin)
                    begin, piece = stop, piece + 1

    def used(self, piece: int, first: int, last: int) -> int:
        """How many samples of a piece are at positions `first` up to `last` of the order."""
        begin, end = int(self.bounds[piece]), int(self.bounds[piece + 1])
        if self.lanes is not None:
            lane = self.lane_of[piece : piece + 1]
            start = int(self.lanes.starts[lane[0]])
            first, last = (start + int(self.lanes.taken(lane, position)[0]) for position in (first, last))
        return max(0, min(end, last) - max(begin, first))

    def samples(self, piece: int) -> Int64s:
        """The samples of a piece in their order, as positions from its block's first sample.

        Raises:
            PlanError: the order uses another number of samples of the block than it says.
        """
        block = int(self.numbers[piece])
        inside = self.blocks.inside_block(block)
        if inside.size != (counted := self.blocks.block_samples(block)):
            raise PlanError(f"the policy's order uses {inside.size} samples of block {block}, and says {counted}")
        skipped = int(self.skipped[piece])
        return inside[skipped : skipped + int(self.bounds[piece + 1] - self.bounds[piece])]

    def block_range(self, piece: int) -> tuple[int, int]:
        """First sample of a piece's block, and the sample after its last."""
        return self.blocks.block_range(int(self.numbers[piece]))

    def _runs(self, first: int, last: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Where positions lie side by side: the first place of each run, and one after its last; batch by batch."""
        if self.lanes is None:
            yield np.array([first]), np.array([last])
            return
        while first < last:
            end = min(last, (first // self.lanes.batch_size + 1) * self.lanes.batch_size)
            lanes = self.lanes.lanes_between(first, end)
            begins, ends = (self.lanes.starts[lanes] + self.lanes.taken(lanes, position) for position in (first, end))
            yield begins, ends
            first = end
