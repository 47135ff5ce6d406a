"""Who computes which sample: the trainer that holds the most of its rows (Herald; docs/policies.md).

Legend: `n` samples of a batch, `T` trainers.
"""

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.batch_rows import Int64s
from bagpipe_hpc.planning.policies.herald.held_rows import NOBODY, HeldRows


class ByLocation:
    """An `Assignment` that tracks the trainers' caches from the batches of a segment.

    Each trainer gets as many samples as its contiguous slice would have, in the batch's order.

    Args:
        held: the rows that trainers hold; empty at first.
        trainers: number of trainers T.
        features: numbers of the features whose rows count; None for all.
    """

    def __init__(self, held: HeldRows, trainers: int, features: Int64s | None = None) -> None:
        self.held = held
        self._trainers = trainers
        self._features = features
        self._batches = 0

    def __call__(self, rows: Bags) -> list[NDArray[np.integer]]:
        """The samples of each trainer, ascending."""
        users = by_score(self._scores(rows), self._batches)
        self.held.take(rows.values, users[rows.sample_of_value])
        self._batches += 1
        return [np.flatnonzero(users == trainer) for trainer in range(self._trainers)]

    def _scores(self, rows: Bags) -> Int64s:
        """Look-ups of each sample whose row a trainer holds, int64 `[n, T]`."""
        values, samples = rows.values, rows.sample_of_value
        if self._features is not None:
            counts = np.isin(rows.columns, self._features)
            values, samples = values[counts], samples[counts]
        holders = self.held.holders(values)
        places = samples.astype(np.int64) * self._trainers + holders
        found = np.bincount(places[holders != NOBODY], minlength=rows.samples * self._trainers)
        return found.reshape(rows.samples, self._trainers)


def by_score(scores: NDArray[np.integer], number: int) -> Int64s:
    """Give samples, one after the other, to the trainer with the highest score of those whose slice is not full.

    Of trainers with equal scores it is the first in the order number, number + 1, ... mod T, so that ties are shared
    out fairly. Which trainer a sample gets depends only on which trainers are full. So all samples up to the one that
    fills the next trainer are given at once.

    Args:
        scores: score of each sample at each trainer, `[n, T]`.
        number: number of the batch.

    Returns:
        The trainer of each sample, int64 `[n]`.
    """
    samples, trainers = scores.shape
    room = np.diff(slice_bounds(samples, trainers))
    order = (number + np.arange(trainers)) % trainers
    given = np.empty(samples, dtype=np.int64)
    first = 0
    while first < samples:
        order = order[room[order] > 0]
        wanted = order[np.argmax(scores[first:, order], axis=1)]
        places = [np.flatnonzero(wanted == trainer) for trainer in order]
        filled = [own[left - 1] for own, left in zip(places, room[order], strict=True) if own.size >= left]
        last = int(min(filled, default=wanted.size - 1)) + 1
        given[first : first + last] = wanted[:last]
        room -= np.bincount(wanted[:last], minlength=trainers)
        first += last
    return given
