"""The order of samples in which batches are hot or cold, and blocks of such batches take turns. Pure.

Legend: `P` pieces of blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.sample_order import SampleOrder

Int64s = NDArray[np.int64]
AreHot = Callable[[int, int], NDArray[np.bool_]]
"""Whether samples `first` up to `last` are hot, bool `[last - first]`."""


class Section(NamedTuple):
    """Hot samples that are used one after the other, or cold ones.

    Attributes:
        hot: whether they are hot.
        first: the first of them among the hot samples, or the cold ones, in the order without a policy.
        last: one after the last of them.
    """

    hot: bool
    first: int
    last: int


def sections(cold: int, hot: int, batch_size: int, share_percent: int) -> list[Section]:
    """How cold and hot samples take turns.

    A share of the cold samples comes first, then as large a share of the hot ones, and so on. Each part is cut to whole
    batches, and what is left over is carried on to the next part of its kind. So every batch is hot or cold, but for
    one: what is left of both, less than a batch each, comes at the end, cold samples first.

    Args:
        cold: number of cold samples.
        hot: number of hot samples.
        batch_size: samples of a batch.
        share_percent: of a part, 1 to 100.

    Returns:
        The parts that are not empty, in their order.
    """
    found, ends = [], {False: 0, True: 0}
    counts = {False: cold, True: hot}
    for turn in range(1, -(-100 // share_percent) + 1):
        percent = min(100, turn * share_percent)
        for is_hot, count in counts.items():
            end = count * percent // 100 // batch_size * batch_size
            found.append(Section(is_hot, ends[is_hot], end))
            ends[is_hot] = end
    found += [Section(is_hot, ends[is_hot], count) for is_hot, count in counts.items()]
    return [section for section in found if section.first < section.last]


def hot_batches(cold: int, hot: int, batch_size: int, share_percent: int) -> Int64s:
    """Numbers of the batches of an epoch that have hot samples alone, ascending, int64; arguments as for `sections`."""
    found, begin, samples = [], 0, cold + hot
    parts = sections(cold, hot, batch_size, share_percent)
    for section in parts:
        end = begin + section.last - section.first
        if section.hot:
            last = end // batch_size if end < samples else -(-end // batch_size)
            found.append(np.arange(-(-begin // batch_size), last, dtype=np.int64))
        begin = end
    return np.concatenate([np.empty(0, dtype=np.int64), *found])


@dataclass(frozen=True)
class HotColdOrder(SampleOrder):
    """Hot and cold samples of an order in turn, each kind in that order.

    A block of it is a piece of one of `default`: those of its hot samples, or of its cold ones, that a section takes.
    So each block of samples is read once for its cold samples, once for its hot ones, and once more for each section
    that begins within it.

    Attributes:
        default: the order of all samples.
        batch_size: samples of a batch.
        share_percent: as for `sections`.
        are_hot: tells hot samples.
    """

    default: SampleOrder = field(kw_only=True)
    batch_size: int = field(kw_only=True)
    share_percent: int = field(kw_only=True)
    are_hot: AreHot = field(kw_only=True, compare=False, repr=False)

    @classmethod
    def of(cls, default: SampleOrder, batch_size: int, share_percent: int, are_hot: AreHot) -> "HotColdOrder":
        """That of the same samples; arguments are the attributes."""
        return cls(
            default.rows,
            default.block_rows,
            default.seed,
            default.epoch,
            default.shuffle,
            default=default,
            batch_size=batch_size,
            share_percent=share_percent,
            are_hot=are_hot,
        )

    def blocks(self) -> Int64s:
        """Numbers of the pieces, int64 `[P]`."""
        return np.arange(self._pieces.shape[1], dtype=np.int64)

    @property
    def block_count(self) -> int:
        """Number of pieces P."""
        return int(self._pieces.shape[1])

    def block_range(self, block: int) -> tuple[int, int]:
        """First sample of a piece's block, and the sample after its last."""
        return self.default.block_range(int(self._pieces[0, block]))

    def block_samples(self, block: int) -> int:
        """How many samples a piece has."""
        return int(self._pieces[3, block])

    def sizes(self, blocks: Int64s) -> Int64s:
        """`block_samples` of many pieces, int64 `[pieces]`."""
        sizes: Int64s = self._pieces[3, blocks]
        return sizes

    def inside_block(self, block: int) -> Int64s:
        """Samples of a piece in their order, as positions from its block's first sample."""
        number, is_hot, skipped, count = self._pieces[:, block].tolist()
        inside = self.default.inside_block(number)
        own: Int64s = inside[self.are_hot(*self.default.block_range(number))[inside] == bool(is_hot)]
        return own[skipped : skipped + count]

    @cached_property
    def _pieces(self) -> Int64s:
        """Of each piece: its block, whether it is hot, how many samples of the kind come before it there, and its own.

        Returns:
            int64 `[4, P]`.
        """
        numbers = self.default.blocks()
        sizes = self.default.sizes(numbers)
        hot = np.array(
            [np.count_nonzero(self.are_hot(*self.default.block_range(block))) for block in numbers.tolist()],
            dtype=np.int64,
        )
        bounds = {kind: np.concatenate(([0], np.cumsum(count))) for kind, count in ((False, sizes - hot), (True, hot))}
        pieces = []
        for section in sections(int(bounds[False][-1]), int(bounds[True][-1]), self.batch_size, self.share_percent):
            ends = bounds[section.hot]
            begin, end = np.maximum(ends[:-1], section.first), np.minimum(ends[1:], section.last)
            used = np.flatnonzero(begin < end)
            kind = np.full(used.size, section.hot, dtype=np.int64)
            pieces.append(np.stack((numbers[used], kind, (begin - ends[:-1])[used], (end - begin)[used])))
        return np.concatenate(pieces, axis=1) if pieces else np.empty((4, 0), dtype=np.int64)
