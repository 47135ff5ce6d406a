"""An order in which each part of a batch comes from blocks of its own, whoever computes that part. Pure.

Legend: `B` samples of a batch, `K` lanes, `k` some of them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.plan.slices import slice_bounds

LEAST_BLOCKS = 8
"""Of a lane: about two of them are read twice."""
AUTOMATIC = 0
"""Lanes to ask for where the data shall decide."""
_AUTOMATIC_BLOCKS = 32
"""Of a lane then: so a sixteenth of the data is read twice."""
_MOST_AUTOMATIC = 1024
_GOLDEN = 2654435769
"""2^32 / 1.618...: multiples of it, modulo 2^32, spread evenly, however many of them there are."""


@dataclass(frozen=True)
class LaneOrder:
    """Batches that are put together from K lanes.

    The samples in the order of their blocks, an epoch's, are cut into K pieces of the same length, the lanes. A batch
    takes the next B / K samples of each lane, lane after lane. So a contiguous slice of the batches needs the blocks of
    its own lanes alone; and a batch has samples of K blocks from all over the data, where a single lane gives it those
    of B / `block_rows` blocks. How many trainers there are has no say.

    A lane begins within a block, each at another place of it, and comes to the samples before that place at its end:
    else all lanes could come to the ends of their blocks in the same batch.

    Attributes:
        blocks: the order of blocks, and of the samples in each.
        batch_size: B; the last batch of an epoch may be smaller.
        lanes: K, from 1 to B.
    """

    blocks: SampleOrder
    batch_size: int
    lanes: int

    def taken(self, lanes: Int64s, position: int) -> Int64s:
        """How many samples of some lanes are among the first `position` of the order, int64 `[k]`."""
        batch, within = divmod(position, self.batch_size)
        whole, rest = self._shares
        bounds = whole if batch < self.blocks.rows // self.batch_size else rest
        of_batch = np.clip(within - bounds[lanes], 0, bounds[lanes + 1] - bounds[lanes])
        taken: Int64s = batch * (whole[lanes + 1] - whole[lanes]) + of_batch
        return taken

    def lanes_between(self, first: int, last: int) -> Int64s:
        """The lanes that have samples at positions `first` up to `last` of the order, all of one batch: int64 `[k]`."""
        batch, begin = divmod(first, self.batch_size)
        bounds = self._shares[0 if batch < self.blocks.rows // self.batch_size else 1]
        least = int(np.searchsorted(bounds, begin, side="right")) - 1
        return np.arange(least, np.searchsorted(bounds, begin + last - first, side="left"))

    @cached_property
    def starts(self) -> Int64s:
        """Where lanes begin, lane after lane, and where the last one ends: int64 `[K + 1]`."""
        whole, rest = self._shares
        return whole * (self.blocks.rows // self.batch_size) + rest

    @cached_property
    def turns(self) -> Int64s:
        """How far from its first sample in the order of the blocks each lane begins, int64 `[K]`."""
        block_rows = min(self.blocks.block_rows, max(1, self.blocks.rows))
        within = (np.arange(self.lanes) * _GOLDEN % (1 << 32)) * min(block_rows, 1 << 30) >> 32
        turns: Int64s = (within - self.starts[:-1]) % block_rows % np.maximum(1, np.diff(self.starts))
        return turns

    @cached_property
    def _shares(self) -> tuple[Int64s, Int64s]:
        """Where the samples of each lane begin in a full batch, and in the last one: int64 `[K + 1]` each."""
        numbers = np.arange(self.lanes + 1)
        return numbers * self.batch_size // self.lanes, numbers * (self.blocks.rows % self.batch_size) // self.lanes


def automatic_lanes(blocks: int, batch_size: int, most: int = _MOST_AUTOMATIC) -> int:
    """The most lanes, a power of two, of which each has a sample of a batch and 32 blocks; 1 where there are too few.

    How many trainers there are has no say, so that the order is the same for any number of them.
    """
    room = min(most, _MOST_AUTOMATIC, blocks // _AUTOMATIC_BLOCKS, batch_size)
    return 1 << max(1, room).bit_length() - 1


def usable_lanes(wanted: int, blocks: int, batch_size: int) -> int:
    """As many lanes as are wanted, or that halved until each has a sample of a batch and `LEAST_BLOCKS` blocks."""
    while wanted > 1 and (wanted > batch_size or wanted * LEAST_BLOCKS > blocks):
        wanted //= 2
    return wanted


def pieces_of_lanes(batch_size: int, lanes: int, trainers: int) -> int:
    """Into how many pieces the lanes of a full batch are cut by the slices of its trainers, who read a block for each.

    As many as there are lanes if no slice begins within one, as where their number divides lanes and batch size.
    """
    cuts = {lane * batch_size // lanes for lane in range(lanes)}.union(slice_bounds(batch_size, trainers))
    return len(cuts) - 1  # the end of the batch is among them
