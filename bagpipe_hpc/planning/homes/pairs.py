"""Pairs of a row and a trainer that uses it: what is known of each, how they are cut by trainer, and counted.

Legend: `P` pairs of a batch, `T` trainers.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.planning.batch_rows import Bools, Int32s, Int64s


class InSlice(IntEnum):
    """What a row is in the slice of a trainer that uses it, in the order of the slice's slots.

    A copy of another home's row, its own row that others use as well, or its own that nobody else uses. The gradients
    of the first two are summed now or later.
    """

    COPY_NOW = 0
    COPY_LATER = 1
    LENT_NOW = 2
    LENT_LATER = 3
    SOLO = 4


class Pairs(NamedTuple):
    """The pairs of a batch; arrays `[P]`.

    Attributes:
        rows: indices into the unique ones.
        users: the trainer.
        homes: who holds the row for it.
        are_away: whether that is another trainer.
        kinds: what the row is in the user's slice, as `InSlice` has it.
        are_rest: whether a copy of the row comes when the rows of the batch are fetched, and not before.
        slots: of the row, or of its copy, in the user's cache.
    """

    rows: Int64s
    users: Int64s
    homes: NDArray[np.integer]
    are_away: Bools
    kinds: Int64s
    are_rest: Bools
    slots: NDArray[np.integer]


@dataclass(frozen=True)
class SumsAtHomes:
    """Sums that homes make.

    Attributes:
        slots: of the rows that each home sums.
        places: of each gradient that it gets, the row's place among them.
        sources: how many each trainer has for each home, `[T homes, T]`.
        hosted: how many of the rows, the first ones, are held once a host.
    """

    slots: list[Int32s]
    places: list[Int32s]
    sources: Int64s
    hosted: list[int]


def of_each(values: NDArray[Any], of: NDArray[np.integer], trainers: int) -> list[NDArray[Any]]:
    """The values of each trainer.

    Args:
        values: those of the first trainer first, `[P]`.
        of: whose they are, in any order, `[P]`.
        trainers: number T.
    """
    return np.split(values, np.cumsum(np.bincount(of, minlength=trainers))[:-1])


def counts_between(ones: NDArray[np.integer], others: NDArray[np.integer], trainers: int) -> Int64s:
    """How often each trainer is the one and each the other of some pairs, `[P]` both: int64 `[T ones, T others]`."""
    places = ones.astype(np.int64) * trainers + others
    return np.bincount(places, minlength=trainers * trainers).reshape(trainers, trainers)


def without_own(counts: Int64s) -> Int64s:
    """The same, but what trainers have for themselves is not sent, `[T, T]`."""
    sent = counts.copy()
    np.fill_diagonal(sent, 0)
    return sent
