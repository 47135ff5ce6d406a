"""The order in which records are added to places, where a place may come several times: it gets each of its records.

Legend: `N` records of one call.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct_rounds(places: NDArray[np.integer[Any]]) -> Iterator[NDArray[np.int64] | None]:
    """Cut a call into rounds in which none of `places [N]` comes twice: the first record of each, then the second, ...

    Yields:
        Which of the records are in the round, int64; None for all, where no place comes twice.
    """
    ascending = np.sort(places)  # 10 to 20 times as fast as `argsort`
    if not np.any(ascending[1:] == ascending[:-1]):
        yield None
        return
    order, turns = _turns(places)
    by_turn = np.argsort(turns, kind="stable")
    yield from np.split(order[by_turn], np.cumsum(np.bincount(turns))[:-1])


def turns_of(places: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """In which of the rounds of `distinct_rounds` each record is: how often its place has come before, int64 `[N]`."""
    order, turns = _turns(places)
    found = np.empty_like(turns)
    found[order] = turns
    return found


def _turns(places: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The records by ascending place, those of one place in their order; and how many of its place come before each."""
    order = np.argsort(places, kind="stable")
    ascending = places[order]
    is_first = np.empty(places.size, dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    numbers = np.arange(places.size)
    return order, numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
