"""What a trainer exchanges with others for a batch, where each row has one home (`cache.sharing = "home"`)."""

from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.exchange_grid import Grid

Counts = NDArray[np.integer]
Int32s = NDArray[np.int32]

_NUMBERS = 5
_PAIRS = 8


class Kind(IntEnum):
    """What rows between trainers are."""

    NOW_GRADIENTS = 0
    LATER_GRADIENTS = 1
    NEXT_COPIES = 2
    REST_COPIES = 3


class Flow(NamedTuple):
    """How many rows of one kind one trainer sends, takes in and passes on, `R` x `C` trainers.

    Attributes:
        grid: over which they travel.
        to: for each trainer, `[T]`; none for itself.
        source: of each trainer, `[T]`, its own among them, which stay where they are.
        relayed: of each trainer of its row for each of its column, itself among both, `[C, R]`; `[C, 0]` where rows
            travel directly.
    """

    grid: Grid
    to: Counts
    source: Counts
    relayed: Counts


@dataclass(frozen=True)
class ExchangeCounts:
    """Of one trainer and batch x; arrays `[T]`, by the other trainer, but the last.

    Attributes:
        now_rows: how many of `summed_slots` are summed before the next batch starts; the others are later ones.
        own_now: how many of `lent_slots` are of such rows.
        rest_slot: slot of the first of the rest of this batch's copies, which lie one behind the other.
        next_slot: slot of the first of the copies that the next batch gets when this one has updated them.
        columns: of the grid over which rows travel; T where they travel directly.
        now_to: gradients that are sent home before the next batch starts, the first of `copy_slots`.
        now_from: gradients that this home sums, its own among them.
        later_to: as `now_to`, behind the next batch.
        later_from: as `now_from`.
        next_to: copies that are sent for the next batch, after this one's update.
        next_from: those that come.
        rest_to: the rest of the copies for this batch, sent before it starts.
        rest_from: those that come.
        relayed: of each kind, what this trainer passes on: of each one in its row for each in its column, `[4, C, R]`;
            `[4, C, 0]` where rows travel directly.
    """

    now_rows: int
    own_now: int
    rest_slot: int
    next_slot: int
    columns: int
    now_to: Counts
    now_from: Counts
    later_to: Counts
    later_from: Counts
    next_to: Counts
    next_from: Counts
    rest_to: Counts
    rest_from: Counts
    relayed: Counts

    def flow(self, kind: Kind) -> Flow:
        """What flows of one kind."""
        to, source = (  # in the order of `Kind`
            (self.now_to, self.now_from),
            (self.later_to, self.later_from),
            (self.next_to, self.next_from),
            (self.rest_to, self.rest_from),
        )[kind]
        return Flow(Grid(to.size // self.columns, self.columns), to, source, self.relayed[kind])

    def encode(self) -> Int32s:
        """All in one array, int32 `[5 + 8 T]`, or `[5 + 12 T]` where rows are passed on."""
        numbers, arrays = _values(self)[:_NUMBERS], _values(self)[_NUMBERS:]
        return np.concatenate((np.asarray(numbers), *map(np.ravel, arrays))).astype(np.int32)

    @classmethod
    def decode(cls, encoded: Int32s) -> Self:
        """What `encode` gave."""
        numbers = encoded[:_NUMBERS].tolist()
        columns, size = numbers[-1], encoded.size - _NUMBERS
        trainers = columns if size == _PAIRS * columns else size // (_PAIRS + len(Kind))
        pairs = encoded[_NUMBERS : _NUMBERS + _PAIRS * trainers].reshape(_PAIRS, trainers)
        relayed = encoded[_NUMBERS + pairs.size :].reshape(len(Kind), columns, -1)
        return cls(*numbers, *(*pairs, relayed))


def _values(counts: ExchangeCounts) -> list[Counts]:
    return [getattr(counts, entry.name) for entry in fields(counts)]


class Hosted(NamedTuple):
    """Rows that one trainer of each host holds, so that what these sum goes on from host to host.

    Attributes:
        of_host: trainers g of a host: trainers h g to h g + g - 1 are on host h; 0 where no row is held so.
        now_rows: how many of the rows that are summed before the next batch starts are held so; they come first.
        later_rows: as `now_rows`, of those that are summed behind it.
    """

    of_host: int = 0
    now_rows: int = 0
    later_rows: int = 0

    def encode(self) -> Int32s:
        """As a plan has it."""
        return np.asarray(self, dtype=np.int32)

    @classmethod
    def decode(cls, encoded: Int32s) -> Self:
        """What `encode` gave."""
        return cls(*encoded.tolist())


class Summed(NamedTuple):
    """What a home sums.

    Attributes:
        slots: of the rows, int32 `[n]`.
        places: the row of each gradient, an index into `slots`: those of the first trainer first, in each ascending.
        sources: how many each trainer has, `[T]`.
        hosted: how many of the rows are held once a host; they come first.
    """

    slots: Int32s
    places: Int32s
    sources: Counts
    hosted: int = 0


class Exchange(NamedTuple):
    """What one trainer exchanges for a batch; slots are of its own cache, int32.

    Attributes:
        counts: how many rows.
        copy_slots: of the copies that its slice uses: those whose gradients go home now, then the others; in each,
            homes are in the order of the grid's `sending_places`.
        lent_slots: of rows that live here and that other trainers' slices use as well: those summed now, then later.
        summed_slots: of rows that live here, of which it sums the gradients: now, then later.
        sum_places: of each gradient that is summed now, its row's place among the slots; then likewise of later.
        sent_slots: of rows that live here, of which copies are sent: next ones, then the rest; in each, trainers are in
            the order of the grid's `sending_places`.
        hosted: which of the rows that it sums are held once a host.
    """

    counts: ExchangeCounts
    copy_slots: Int32s
    lent_slots: Int32s
    summed_slots: Int32s
    sum_places: Int32s
    sent_slots: Int32s
    hosted: Hosted = Hosted()

    @property
    def now(self) -> Summed:
        """What is summed before the next batch starts."""
        rows, gradients = self.counts.now_rows, int(self.counts.now_from.sum())
        return Summed(self.summed_slots[:rows], self.sum_places[:gradients], self.counts.now_from, self.hosted.now_rows)

    @property
    def later(self) -> Summed:
        """What is summed behind the next batch."""
        rows, gradients = self.counts.now_rows, int(self.counts.now_from.sum())
        return Summed(
            self.summed_slots[rows:], self.sum_places[gradients:], self.counts.later_from, self.hosted.later_rows
        )

    @property
    def next_sent(self) -> Int32s:
        """Slots of which copies are sent for the next batch."""
        return self.sent_slots[: self.counts.next_to.sum()]

    @property
    def rest_sent(self) -> Int32s:
        """Slots of which the rest of the copies is sent for this batch."""
        return self.sent_slots[self.counts.next_to.sum() :]

    def slice_parts(self, solo: int) -> list[int]:
        """How the rows of the slice divide: copies now and later, lent now and later, and `solo` private ones."""
        copies, lent = int(self.counts.now_to.sum()), self.counts.own_now
        return [copies, self.copy_slots.size - copies, lent, self.lent_slots.size - lent, solo]


def pieces(counts: Counts) -> list[slice]:
    """Where each part of so many rows is, if they lie one behind the other; counts of any shape, row after row."""
    ends = np.concatenate(([0], counts.cumsum())).tolist()
    return [slice(*bounds) for bounds in pairwise(ends)]
