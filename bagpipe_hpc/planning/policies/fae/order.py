"""The order of samples in which batches are hot or cold, and sections of such batches take turns. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.plan.section_order import Section, SectionOrder

Int64s = NDArray[np.int64]
AreHot = Callable[[int, int], NDArray[np.bool_]]
"""Whether samples `first` up to `last` are hot, bool `[last - first]`."""
LayOut = Callable[[int, int], Sequence[Section]]
"""Gives the sections in which these numbers of cold and of hot samples take turns."""
COLD, HOT = 0, 1
"""Kinds of samples."""


def sections(cold: int, hot: int, batch_size: int, share_percent: int) -> list[Section]:
    """How cold and hot samples take turns.

    A share of the cold samples comes first, then as large a share of the hot ones, and so on. Each part is cut to whole
    batches, and what is left over is carried on to the next part of its kind. So every batch is either hot or cold,
    except at the end: what is left of both kinds, less than a batch of each, comes last, cold samples first.

    Args:
        cold: number of cold samples.
        hot: number of hot samples.
        batch_size: samples of a batch.
        share_percent: share of a kind's samples in a part, 1 to 100.

    Returns:
        The parts that are not empty, in their order.
    """
    found, ends, counts = [], [0, 0], (cold, hot)
    for turn in range(1, -(-100 // share_percent) + 1):
        percent = min(100, turn * share_percent)
        for kind, count in enumerate(counts):
            end = count * percent // 100 // batch_size * batch_size
            found.append(Section(kind, ends[kind], end))
            ends[kind] = end
    found += [Section(kind, ends[kind], count) for kind, count in enumerate(counts)]
    return [section for section in found if section.first < section.last]


def hot_batches(cold: int, hot: int, batch_size: int, share_percent: int) -> Int64s:
    """Numbers of the batches of an epoch that have hot samples alone, ascending, int64; arguments as for `sections`."""
    found, begin = [], 0
    for section in sections(cold, hot, batch_size, share_percent):
        end = begin + section.last - section.first
        if section.kind == HOT:  # it ends with a batch, or with the epoch
            found.append(np.arange(-(-begin // batch_size), -(-end // batch_size), dtype=np.int64))
        begin = end
    return np.concatenate([np.empty(0, dtype=np.int64), *found])


def hot_cold_order(default: SampleOrder, lay_out: LayOut, are_hot: AreHot) -> SectionOrder:
    """The order in which cold and hot samples take turns.

    Each block of samples is read once for its cold samples, once for its hot ones, and once more for each section that
    begins within it.

    Args:
        default: the order of all samples.
        lay_out: gives the sections.
        are_hot: tells which samples are hot.
    """
    numbers = default.blocks()
    hot = np.zeros(default.block_count, dtype=np.int64)
    hot[numbers] = [np.count_nonzero(are_hot(*default.block_range(block))) for block in numbers.tolist()]
    all_samples = np.zeros_like(hot)
    all_samples[numbers] = default.sizes(numbers)
    kinds = tuple(
        KindOrder(
            int(counts.sum()),
            default.block_rows,
            default.seed,
            default.epoch,
            default.shuffle,
            default=default,
            kind=kind,
            counts=counts,
            are_hot=are_hot,
        )
        for kind, counts in ((COLD, all_samples - hot), (HOT, hot))
    )
    return SectionOrder(kinds, tuple(lay_out(kinds[COLD].rows, kinds[HOT].rows)))


@dataclass(frozen=True)
class KindOrder(SampleOrder):
    """The hot samples of an order, or the cold ones, in that order.

    Attributes:
        default: the order of all samples.
        kind: `COLD` or `HOT`.
        counts: samples of the kind in each block, int64 `[blocks]`.
        are_hot: tells which samples are hot.
    """

    default: SampleOrder = field(kw_only=True)
    kind: int = field(kw_only=True)
    counts: Int64s = field(kw_only=True, compare=False, repr=False)
    are_hot: AreHot = field(kw_only=True, compare=False, repr=False)

    def blocks(self) -> Int64s:
        """Blocks with samples of the kind, in the order in which they are used, int64 `[some]`."""
        return self._blocks

    @cached_property
    def _blocks(self) -> Int64s:
        blocks = self.default.blocks()
        return blocks[self.counts[blocks] > 0]

    @property
    def block_count(self) -> int:
        """Number of blocks, without those that have no sample of the kind."""
        return int(np.count_nonzero(self.counts))

    def block_range(self, block: int) -> tuple[int, int]:
        """First sample of a block, and the sample after its last."""
        return self.default.block_range(block)

    def block_samples(self, block: int) -> int:
        """How many samples of the kind a block has."""
        return int(self.counts[block])

    def sizes(self, blocks: Int64s) -> Int64s:
        """`block_samples` of many blocks, int64 `[blocks]`."""
        sizes: Int64s = self.counts[blocks]
        return sizes

    def inside_block(self, block: int) -> Int64s:
        """The block's samples of the kind in their order, as positions from its first sample."""
        inside = self.default.inside_block(block)
        own: Int64s = inside[self.are_hot(*self.default.block_range(block))[inside] == (self.kind == HOT)]
        return own
