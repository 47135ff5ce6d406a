"""Which trainer holds which row: Herald's caches, derived from the batches alone.

A training batch updates every row that it uses. So after a batch a row is up to date at one trainer at most: its
*holder*. Who that is follows from the trainers that use the row in the batch:

    the holder is a user            it stays the holder; other users get copies and send gradients to it
    it is not, or there is none     one of the users becomes the holder, and fetches the row once the old holder, if
                                    there is one, has written it back

A trainer that holds more rows than it may lets go of those that it used longest ago.

Legend: `V` look-ups of a batch, `U` unique rows of it.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.planning.batch_rows import Int32s, Int64s, distinct

NOBODY = -1
"""Holder of a row that is at the servers alone."""
_FEW = 1024
"""A queue with no more surplus rows than this is not searched for rows that have left."""


class HeldRows:
    """The holders of all rows, while batches of a segment are taken in one after the other.

    Two objects that are given the same batches have the same holders, whatever the order of look-ups within a batch.

    Args:
        total_rows: rows of all tables.
        trainers: number of trainers.
        most: rows that a trainer may hold; those of the last batch stay, even if they are more. 0 for any number.
    """

    def __init__(self, total_rows: int, trainers: int, most: int = 0) -> None:
        self._trainers = trainers
        self._most = most
        self._holder = np.empty(total_rows, dtype=np.int32)
        self._last_use = np.empty(total_rows if most else 0, dtype=np.int32)  # batch, of rows that are held
        self.clear()

    @staticmethod
    def bytes_for(total_rows: int, most: int) -> int:
        """Bytes of its arrays."""
        return total_rows * (8 if most else 4)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes at least."""
        return self._holder.nbytes + self._last_use.nbytes

    def clear(self) -> None:
        """Let no trainer hold anything."""
        self._holder.fill(NOBODY)
        self._batch = 0
        self._counts = np.zeros(self._trainers, dtype=np.int64)
        self._queues: list[deque[tuple[int, Int64s]]] = [deque() for _ in range(self._trainers)]  # oldest batch first
        self._queued = np.zeros(self._trainers, dtype=np.int64)

    def holders(self, rows: NDArray[np.integer]) -> Int32s:
        """The trainer that holds each row, or `NOBODY`; int32 of the shape of `rows`."""
        found: Int32s = self._holder[rows]
        return found

    def take(self, rows: NDArray[np.integer], users: NDArray[np.integer]) -> Int64s:
        """Take in the next batch.

        Args:
            rows: global rows of its look-ups, `[V]`.
            users: the trainer of each look-up, `[V]`.

        Returns:
            Rows that their holders let go of for this batch, distinct int64: those that another trainer is to hold, and
            those for which there is no room.
        """
        pair_rows, pair_users = np.divmod(distinct(rows.astype(np.int64) * self._trainers + users), self._trainers)
        first = np.flatnonzero(np.diff(pair_rows, prepend=-1))
        uses = np.diff(first, append=pair_rows.size)
        unique = pair_rows[first]
        before = self._holder[unique]
        stays = np.logical_or.reduceat(pair_users == np.repeat(before, uses), first)
        in_turn = np.cumsum(~stays) - 1
        holders = np.where(stays, before, pair_users[first + in_turn % uses]).astype(np.int32)
        moved = ~stays & (before != NOBODY)
        self._holder[unique] = holders
        self._counts += self._rows_of(holders[~stays]) - self._rows_of(before[moved])
        evicted = self._make_room(unique, holders) if self._most else []
        self._batch += 1
        return np.concatenate((unique[moved], *evicted))

    def _rows_of(self, holders: Int32s) -> Int64s:
        return np.bincount(holders, minlength=self._trainers)

    def _make_room(self, unique: Int64s, holders: Int32s) -> list[Int64s]:
        """Make trainers that hold too many rows drop those used longest ago; of the same batch, lower rows first."""
        self._last_use[unique] = self._batch
        used = np.split(unique[np.argsort(holders, kind="stable")], np.cumsum(self._rows_of(holders))[:-1])
        evicted = []
        for trainer, rows in enumerate(used):
            if rows.size:
                self._queues[trainer].append((self._batch, rows))
            self._queued[trainer] += rows.size
            evicted += self._evict(trainer)
            if self._queued[trainer] > 2 * self._counts[trainer] + _FEW:
                self._tidy(trainer)
        return evicted

    def _evict(self, trainer: int) -> list[Int64s]:
        queue, evicted = self._queues[trainer], []
        while (excess := int(self._counts[trainer]) - self._most) > 0 and queue[0][0] < self._batch:
            batch, rows = queue.popleft()
            self._queued[trainer] -= rows.size
            held = self._still(trainer, batch, rows)
            leaving, rest = held[:excess], held[excess:]
            if rest.size:
                queue.appendleft((batch, rest))
                self._queued[trainer] += rest.size
            self._holder[leaving] = NOBODY
            self._counts[trainer] -= leaving.size
            evicted.append(leaving)
        return evicted

    def _tidy(self, trainer: int) -> None:
        """Remove rows from a trainer's queue that have left, or were used in a later batch."""
        shorter = ((batch, self._still(trainer, batch, rows)) for batch, rows in self._queues[trainer])
        self._queues[trainer] = deque((batch, rows) for batch, rows in shorter if rows.size)
        self._queued[trainer] = sum(rows.size for _, rows in self._queues[trainer])

    def _still(self, trainer: int, batch: int, rows: Int64s) -> Int64s:
        """Of rows that a trainer used in a batch, those that it still holds and has not used since."""
        still: Int64s = rows[(self._holder[rows] == trainer) & (self._last_use[rows] == batch)]
        return still
