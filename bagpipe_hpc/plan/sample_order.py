"""In which order samples are used: a pure function of (seed, epoch)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.split_mix import GOLDEN, mix

_AT_ONCE = 1 << 20
_NAMED_UP_TO = 1 << 27
"""Samples of an order in which the first mistake is looked for: that takes a byte a sample."""


class UsesSamples(Protocol):
    """An order of samples, whatever it consists of."""

    @property
    def rows(self) -> int:
        """Number of samples."""

    def used(self) -> Iterator[NDArray[np.int64]]:
        """The samples in their order, in pieces."""


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
        if not self.shuffle:
            return np.arange(self.block_count, dtype=np.int64)
        return np.random.default_rng([self.seed, self.epoch]).permutation(self.block_count).astype(np.int64)

    @property
    def block_count(self) -> int:
        """Number of blocks."""
        return -(-self.rows // self.block_rows)

    def block_range(self, block: int) -> tuple[int, int]:
        """First sample of a block, and the sample after its last."""
        return block * self.block_rows, min((block + 1) * self.block_rows, self.rows)

    def block_samples(self, block: int) -> int:
        """How many samples of a block are used: the length of `inside_block`, known without it."""
        first, last = self.block_range(block)
        return last - first

    def sizes(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """`block_samples` of many blocks, int64 `[blocks]`."""
        return np.array([self.block_samples(block) for block in blocks.tolist()], dtype=np.int64)

    def inside_block(self, block: int) -> NDArray[np.int64]:
        """Order of a block's samples, as positions from the block's first sample, int64 `[samples of the block]`."""
        first, last = self.block_range(block)
        if not self.shuffle:
            return np.arange(last - first, dtype=np.int64)
        return np.random.default_rng([self.seed, self.epoch, block + 1]).permutation(last - first).astype(np.int64)

    def used(self) -> Iterator[NDArray[np.int64]]:
        """The samples in their order, block by block."""
        for block in self.blocks().tolist():
            yield self.block_range(block)[0] + self.inside_block(block)


@dataclass(frozen=True)
class ShardBlocks(SampleOrder):
    """The same, with blocks that begin anew in each shard, so that none has a piece of a chunk of the next.

    Attributes:
        shard_rows: samples of each shard, in order; `rows` together.
    """

    shard_rows: tuple[int, ...] = ()

    @cached_property
    def _shards(self) -> NDArray[np.int64]:
        """First sample of each shard, and the number of all."""
        return np.concatenate(([0], np.cumsum(self.shard_rows, dtype=np.int64)))

    @cached_property
    def _first_blocks(self) -> NDArray[np.int64]:
        """First block of each shard, and the number of all."""
        return np.concatenate(([0], np.cumsum(-(-np.diff(self._shards) // self.block_rows), dtype=np.int64)))

    @property
    def block_count(self) -> int:
        """Number of blocks."""
        return int(self._first_blocks[-1])

    def block_range(self, block: int) -> tuple[int, int]:
        """First sample of a block, and the sample after its last."""
        first, last = self._ranges(np.array([block]))
        return int(first[0]), int(last[0])

    def sizes(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """`block_samples` of many blocks, int64 `[blocks]`."""
        first, last = self._ranges(blocks)
        return last - first

    def _ranges(self, blocks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shards = np.searchsorted(self._first_blocks, blocks, side="right") - 1
        block_rows = min(self.block_rows, self.rows)  # no number beyond int64
        first = self._shards[shards] + (blocks - self._first_blocks[shards]) * block_rows
        return first, np.minimum(first + block_rows, self._shards[shards + 1])


def require_each_once(order: UsesSamples) -> None:
    """See that an order uses every sample once, in the memory of a block.

    Compares the number, and the sum of the hashes, of the samples that it uses with those of all samples.

    Raises:
        PlanError: it uses other samples (but for one wrong order in 2^64, of which the sums are equal by chance).
    """
    whole = (np.arange(first, min(first + _AT_ONCE, order.rows)) for first in range(0, order.rows, _AT_ONCE))
    if _fingerprint(order.used()) != _fingerprint(whole):
        raise PlanError(f"the order of {order.rows} samples uses {_first_mistake(order)}; use each sample once")


def _fingerprint(parts: Iterator[NDArray[np.int64]]) -> tuple[int, int]:
    """Of samples in any order: their number, and the sum of their hashes (SplitMix64's finalizer) modulo 2^64."""
    count, total = 0, np.uint64(0)
    with np.errstate(over="ignore"):
        for part in parts:
            hashes = mix((part.astype(np.uint64) + np.uint64(1)) * GOLDEN)
            count += part.size
            total += hashes.sum(dtype=np.uint64)
    return count, int(total)


def _first_mistake(order: UsesSamples) -> str:
    """What an order does that it must not."""
    if order.rows > _NAMED_UP_TO:
        return "some samples twice, or leaves some out"
    uses = np.zeros(order.rows, dtype=np.int8)
    for part in order.used():
        beyond = part[(part < 0) | (part >= order.rows)]
        if beyond.size:
            return f"sample {beyond[0]}, which there is not"
        np.add.at(uses, part, (uses[part] < 2).astype(np.int8))
    wrong = int(np.flatnonzero(uses != 1)[0])
    return f"sample {wrong} {'several times' if uses[wrong] else 'not at all'}"
