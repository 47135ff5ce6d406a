"""One trainer's cache in HET, derived from the batches alone: clocks, and updates that are not added yet.

A row that is held has a *line*, with these numbers, as in HET's released cache:

    clock    updates of the row, by any trainer, that its value is known to contain: those at the server when it was
             pulled, and this trainer's own that were added since
    unsent   updates of this trainer that are not added yet

A batch makes one update of a row, however often it looks the row up; the released cache counts each look-up.

Legend: `U` rows of this trainer's slice, each once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.planning.batch_rows import Bools, Int32s, Int64s
from bagpipe_hpc.planning.slots import SlotPool

_NONE = -1
_FIRST_LINES = 1024


class Read(NamedTuple):
    """What a trainer does to look rows up.

    Attributes:
        lines: the line of each row, int32 `[U]`.
        is_new: whether the row was not held, bool `[U]`.
        is_stale: whether the row was held, and is pulled anew, bool `[U]`.
    """

    lines: Int32s
    is_new: Bools
    is_stale: Bools


class TrainerCache:
    """Lines of one trainer.

    Args:
        total_rows: rows of all tables.
        lines: the pool of their numbers.
        bound: s, for look-ups and for updates.
        eviction: value of `policy.eviction`.
        pin_after: value of `policy.pin_after`.
    """

    def __init__(self, total_rows: int, lines: SlotPool, bound: int, eviction: str = "lru", pin_after: int = 0) -> None:
        self._pool = lines
        self._bound = bound
        self._counts_uses = eviction != "lru"
        self._pin_after = pin_after if eviction == "lfu_pinned" else 0
        self._line_of = np.full(total_rows, _NONE, dtype=np.int32)
        self._row, self._clock, self._unsent, self._last_use, self._uses = (
            np.full(_FIRST_LINES, _NONE, dtype=np.int64) for _ in range(5)
        )
        self._held = 0

    @property
    def nbytes(self) -> int:
        """Memory that grows with the lines."""
        return 5 * self._row.nbytes

    def clear(self) -> None:
        """Give all lines back."""
        lines = self._lines
        self._line_of[self._row[lines]] = _NONE
        self._free(lines)

    @property
    def _lines(self) -> Int64s:
        return np.flatnonzero(self._row != _NONE)

    def read(self, number: int, rows: Int64s, clocks: Int32s) -> Read:
        """Look rows up.

        Args:
            number: number of the batch, from 0.
            rows: distinct rows, int64 `[U]`.
            clocks: updates of each row that any trainer has added, int32 `[rows of all tables]`.
        """
        lines = self._line_of[rows]
        is_new = lines == _NONE
        lines[is_new] = new = self._pool.take(int(is_new.sum()))
        self._grow(new)
        self._line_of[rows[is_new]] = new
        self._row[new], self._unsent[new], self._uses[new] = rows[is_new], 0, 0
        self._held += new.size
        is_stale: Bools = ~is_new & self.misses_too_much(clocks[rows], lines)
        pulled = is_new | is_stale
        self._clock[lines[pulled]] = clocks[rows[pulled]]
        self._last_use[lines] = number
        self._uses[lines] += 1
        return Read(lines, is_new, is_stale)

    def misses_too_much(self, clocks: Int32s, lines: Int32s) -> Bools:
        """Whether more updates of each row were added elsewhere than a look-up may miss, bool `[lines]`."""
        too_much: Bools = clocks - self._clock[lines] > self._bound
        return too_much

    def update(self, lines: Int32s) -> Int32s:
        """Note an update of the rows in these lines; returns those lines that now have too many unsent updates."""
        self._unsent[lines] += 1
        return lines[self._unsent[lines] > self._bound]

    def add(self, lines: NDArray[np.integer], clocks: Int32s) -> Int64s:
        """Add the updates that are unsent to the rows at the servers.

        Args:
            lines: distinct lines.
            clocks: updates added so far, as for `read`; those of the rows grow by the number that is added.

        Returns:
            The rows of the lines, int64.
        """
        rows: Int64s = self._row[lines]
        sent = self._unsent[lines]
        clocks[rows] += sent.astype(np.int32)
        self._clock[lines] += sent
        self._unsent[lines] = 0
        return rows

    def unsent_lines(self) -> Int64s:
        """Lines of rows with updates that are not added."""
        lines = self._lines
        return lines[self.has_unsent(lines)]

    def choose_leaving(self, number: int, most: int) -> Int64s:
        """The lines that leave after batch `number`, so that `most` are left.

        Rows that the batch uses leave last. Of the others, those with the fewest uses leave first, where uses count,
        then those used longest ago, then the lower rows.
        """
        if (excess := self._held - most) <= 0:
            return np.empty(0, dtype=np.int64)
        lines = self._lines
        if self._pin_after:
            lines = lines[self._uses[lines] < self._pin_after]
        uses = self._uses[lines] if self._counts_uses else np.zeros(lines.size, dtype=np.int64)
        used_now = (self._last_use[lines] == number).astype(np.int64)
        key = (used_now << 62) | (uses << 31) | self._last_use[lines]
        last = np.partition(key, excess - 1)[excess - 1]
        first, even = lines[key < last], lines[key == last]
        even = even[np.argsort(self._row[even])[: excess - first.size]]
        return np.concatenate((first, even))

    def has_unsent(self, lines: NDArray[np.integer]) -> Bools:
        """Whether the rows in these lines have updates that are not added, bool `[lines]`."""
        unsent: Bools = self._unsent[lines] > 0
        return unsent

    def leave(self, lines: NDArray[np.integer]) -> None:
        """Let rows go; from the next batch on, other rows may take their lines."""
        self._line_of[self._row[lines]] = _NONE
        self._free(lines)

    def _free(self, lines: NDArray[np.integer]) -> None:
        self._row[lines] = _NONE
        self._held -= lines.size
        self._pool.give(lines.astype(np.int32))

    def _grow(self, lines: Int32s) -> None:
        size = int(lines.max(initial=0)) + 1
        if size > self._row.size:
            more = np.full(max(size, 2 * self._row.size) - self._row.size, _NONE, dtype=np.int64)
            self._row, self._clock, self._unsent, self._last_use, self._uses = (
                np.concatenate((part, more))
                for part in (self._row, self._clock, self._unsent, self._last_use, self._uses)
            )
