"""An order in which whole batches come from one kind of samples or another, and where readers find them. Pure.

Legend: `P` pieces of blocks, of all kinds together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.plan.lane_order import LaneOrder
from bagpipe_hpc.plan.sample_layout import Part, SampleLayout
from bagpipe_hpc.plan.sample_order import SampleOrder


class Section(NamedTuple):
    """Samples of a kind that are used one after the other.

    Attributes:
        kind: number of the kind.
        first: position of the first of them in the order of their kind: where a batch begins.
        last: one after that of the last; where a batch ends, or the end of the kind.
    """

    kind: int
    first: int
    last: int


@dataclass(frozen=True)
class SectionOrder:
    """Sections of several kinds of samples, in turn.

    Each kind may be put together from lanes of its own (`with_lanes`), so that trainers read their own parts of it.

    Attributes:
        kinds: the order of the samples of each kind; no sample is of two.
        sections: that have each sample of each kind once.
    """

    kinds: tuple[SampleOrder | LaneOrder, ...]
    sections: tuple[Section, ...]

    @property
    def rows(self) -> int:
        """Number of samples."""
        return sum(section.last - section.first for section in self.sections)

    def used(self) -> Iterator[Int64s]:
        """The samples in their order, in pieces."""
        layout = SectionLayout(self)
        for piece, first, last in layout.parts(0, self.rows):
            yield layout.block_range(piece)[0] + layout.samples(piece)[first:last]

    def with_lanes(self, batch_size: int, lanes: int) -> "SectionOrder":
        """The same with each kind put together from lanes."""
        kinds = [LaneOrder(kind, batch_size, lanes) for kind in self.kinds if isinstance(kind, SampleOrder)]
        return replace(self, kinds=tuple(kinds))


class SectionLayout:
    """As `SampleLayout`, of a `SectionOrder`: the pieces of the first kind, then those of the second, and so on.

    Raises:
        PlanError: a kind has not as many samples as it says.
    """

    def __init__(self, order: SectionOrder) -> None:
        self._layouts = [SampleLayout.of(kind) for kind in order.kinds]
        self._first_piece = np.cumsum([0, *(len(layout.numbers) for layout in self._layouts)])
        self._sections = order.sections
        self._starts = np.cumsum([0, *(section.last - section.first for section in order.sections)])
        self.lanes = next((layout.lanes for layout in self._layouts if layout.lanes is not None), None)
        """Those of a kind; None without."""

    @cached_property
    def bounds(self) -> Int64s:
        """Where pieces begin, side by side, and the end of the last, int64 `[P + 1]`."""
        sizes = [np.diff(layout.bounds) for layout in self._layouts]
        return np.concatenate(([0], np.cumsum(np.concatenate(sizes), dtype=np.int64)))

    @cached_property
    def lane_of(self) -> Int64s:
        """A number for the kind and the lane of each piece, int64 `[P]`."""
        most = 1 + max((int(layout.lane_of.max(initial=0)) for layout in self._layouts), default=0)
        return np.concatenate([layout.lane_of + kind * most for kind, layout in enumerate(self._layouts)])

    def parts(self, first: int, last: int) -> Iterator[Part]:
        """Where the samples at positions `first` up to `last` of the order are, in this order."""
        for kind, begin, end in self._of_kinds(first, last):
            for part in self._layouts[kind].parts(begin, end):
                yield part._replace(piece=part.piece + int(self._first_piece[kind]))

    def used(self, piece: int, first: int, last: int) -> int:
        """How many samples of a piece are at positions `first` up to `last` of the order."""
        own, layout, number = self._find(piece)
        return sum(layout.used(number, begin, end) for kind, begin, end in self._of_kinds(first, last) if kind == own)

    def samples(self, piece: int) -> Int64s:
        """The samples of a piece in their order, as positions from its block's first sample."""
        _, layout, number = self._find(piece)
        return layout.samples(number)

    def block_range(self, piece: int) -> tuple[int, int]:
        """First sample of a piece's block, and the sample after its last."""
        _, layout, number = self._find(piece)
        return layout.block_range(number)

    def _find(self, piece: int) -> tuple[int, SampleLayout, int]:
        kind = int(np.searchsorted(self._first_piece, piece, side="right")) - 1
        return kind, self._layouts[kind], piece - int(self._first_piece[kind])

    def _of_kinds(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Kind, and positions in its order, of the samples at some positions."""
        number = max(0, int(np.searchsorted(self._starts, first, side="right")) - 1)
        while first < last:
            section, start = self._sections[number], int(self._starts[number])
            end = min(last, start + section.last - section.first)
            yield section.kind, section.first + first - start, section.first + end - start
            first, number = end, number + 1


def layout_of(order: SampleOrder | LaneOrder | SectionOrder) -> SampleLayout | SectionLayout:
    """Where readers find the samples of an order.

    Raises:
        PlanError: the order has not as many samples as it says.
    """
    return SectionLayout(order) if isinstance(order, SectionOrder) else SampleLayout.of(order)
