"""In which order samples are used: a pure function of (seed, epoch)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SampleOrder:
    """Samples shuffled in blocks, so that the shards are still read in large contiguous pieces.

    The samples are cut into blocks of `block_rows` neighbours (the last may be smaller); the blocks are permuted, and
    so are the samples inside each. Position p of the order is a sample of one known block.

    A policy may use another order, of a subclass: its blocks may overlap and come several times, each time with other
    samples of them, as long as every sample is used once.

    Attributes:
        rows: number of samples.
        block_rows: samples of a block.
        seed: the run's seed.
        epoch: the epoch, from 0; every epoch has an order of its own.
        shuffle: false keeps the samples' own order.
    """

    rows: int
    block_rows: int
    seed: int
    epoch: int
    shuffle: bool = True

    def blocks(self) -> NDArray[np.int64]:
        """Block numbers in the order in which they are used, int64 `[blocks]`."""
        count = -(-self.rows // self.block_rows)
        if not self.shuffle:
            return np.arange(count, dtype=np.int64)
        return np.random.default_rng([self.seed, self.epoch]).permutation(count).astype(np.int64)

    def block_range(self, block: int) -> tuple[int, int]:
        """First sample of a block, and the sample after its last."""
        return block * self.block_rows, min((block + 1) * self.block_rows, self.rows)

    def block_samples(self, block: int) -> int:
        """How many samples of a block are used: the length of `inside_block`, known without it."""
        first, last = self.block_range(block)
        return last - first

    def inside_block(self, block: int) -> NDArray[np.int64]:
        """Order of a block's samples, as positions from the block's first sample, int64 `[samples of the block]`."""
        first, last = self.block_range(block)
        if not self.shuffle:
            return np.arange(last - first, dtype=np.int64)
        return np.random.default_rng([self.seed, self.epoch, block + 1]).permutation(last - first).astype(np.int64)
