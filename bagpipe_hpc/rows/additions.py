"""Adds records to rows of an array in memory; a row that comes several times gets each of them, in their order.

Legend: `P` rows of the array, `N` records of one call, `W` float32 numbers of a record.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.copies import Places, RowCopies, Rows


def add_rows(copies: RowCopies, rows: Rows, places: Places, records: Rows) -> None:
    """`rows[places] += records` for `rows [P, W]`, `places [N]` and `records [N, W]`, all float32 and C-contiguous.

    Nobody else may touch these rows meanwhile.

    Raises:
        IndexError: a place is not one of 0 .. P - 1.
    """
    for chosen in distinct_rounds(places):
        here, added = (places, records) if chosen is None else (places[chosen], records[chosen])
        sums = np.empty_like(added)
        copies.gather(rows, here, sums)
        sums += added
        copies.scatter(rows, here, sums)


def distinct_rounds(places: Places) -> Iterator[NDArray[np.int64] | None]:
    """Cut a call into rounds that hold no place twice: the first record of each place, then the second of each, ...

    Yields:
        Which of the records are in the round, int64; None for all, where no place comes twice.
    """
    order = np.argsort(places, kind="stable")
    ascending = places[order]
    is_first = np.empty(places.size, dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    if is_first.all():
        yield None
        return
    numbers = np.arange(places.size)
    turns = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))  # how often the place has come before
    by_turn = np.argsort(turns, kind="stable")
    yield from np.split(order[by_turn], np.cumsum(np.bincount(turns))[:-1])
