"""Which trainer becomes the home of a row that is fetched: one of those that use it, so that homes exchange as much.

Most rows have few users. These take such rows in turn, which is as good as chance. A popular row is another matter: all
trainers use it, and its home gets their gradients and sends them copies in every batch, for as long as the row stays.
With many trainers some homes would have far more such rows than others, by chance. So each popular row goes to the one
of its users that has the least to exchange of those before it.

Legend: `U` unique rows of a batch.
"""

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.planning.batch_rows import Bools, Int64s
from bagpipe_hpc.planning.homes.slots import UsedBatch

POPULAR_USERS = 8
"""So many trainers or more use a popular row. `kPopularUsers` of the native planner is the same."""


class PopularLoad:
    """What homes are to exchange of the popular rows of one batch that they got so far.

    Args:
        trainers: number of trainers.
    """

    def __init__(self, trainers: int) -> None:
        self._rows = np.zeros(trainers, dtype=np.int64)  # gradients that come in for such rows, or copies that leave

    def take(self, users: Int64s) -> int:
        """Give the next popular row to the one of its users, ascending, with the least load; of several the first."""
        home = int(users[self._rows[users].argmin()])
        self._rows[home] += users.size - 1
        return home


def choose_homes(batch: UsedBatch, fetched: Bools, load: PopularLoad) -> NDArray[np.integer]:
    """A home for each row of a batch that is fetched.

    Args:
        batch: the batch, of which each such row has users.
        fetched: these rows, `[U]`.
        load: of the batch; none of its rows has a home yet.

    Returns:
        The trainers, one for each fetched row.
    """
    rows = np.flatnonzero(fetched)
    first = np.searchsorted(batch.pair_rows, rows)
    users = np.bincount(batch.pair_rows, minlength=batch.unique.size)[rows]
    is_popular = users >= POPULAR_USERS
    in_turn = np.cumsum(~is_popular) - 1
    homes: NDArray[np.integer] = batch.pair_users[first + in_turn % users]
    for row in np.flatnonzero(is_popular).tolist():
        homes[row] = load.take(batch.pair_users[first[row] : first[row] + users[row]])
    return homes
