"""Which rows a trainer has written back since it was last asked: a list of them, or a bit for each row. Pure."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.partition import RowPartition

Updated = NDArray[np.uint8] | NDArray[np.uint32] | NDArray[np.int64]
"""Updated rows of a server: uint8 are bits, `[flag_bytes(rows)]`, the lowest of a byte first; others are positions."""
LISTED: tuple[np.dtype[Any], ...] = (np.dtype(np.uint32), np.dtype(np.int64))
"""Types of positions: the smaller one where it holds a number for every row of the tables."""


class UpdatedRows:
    """Rows by server and position, as a server wants them, in whichever takes less memory.

    A trainer that notes few rows lists them, mostly 4 bytes each; where each row has one home, these are its share of
    what all trainers update. A list that outgrows a bit for each row of the tables is replaced by those bits.

    Args:
        partition: where each row lies.
    """

    def __init__(self, partition: RowPartition) -> None:
        self._partition = partition
        sizes = [flag_bytes(partition.rows_on(server)) for server in range(partition.servers)]
        self._first_bytes = np.cumsum([0, *sizes])
        self._listed_as = LISTED[int(8 * self._first_bytes[-1]) > np.iinfo(LISTED[0]).max]
        self._flags: NDArray[np.uint8] | None = None
        self._listed: list[NDArray[Any]] = []
        self._listed_bytes = 0

    @property
    def nbytes(self) -> int:
        """Memory for the rows that are noted."""
        if self._flags is not None:
            return self._flags.nbytes
        return self._listed_bytes

    def add(self, rows: NDArray[np.int64]) -> None:
        """Note rows `[N]`, in any order, any of them several times."""
        if not rows.size:  # nor is an empty list kept
            return
        places = self._partition.offset(rows) + 8 * self._first_bytes[self._partition.owner(rows)]
        if self._flags is not None:
            mark(self._flags, places)
            return
        self._listed.append(places.astype(self._listed_as))
        self._listed_bytes += self._listed[-1].nbytes
        if self.nbytes > self._first_bytes[-1]:
            self._flags = np.zeros(self._first_bytes[-1], dtype=np.uint8)
            for listed in self._listed:
                mark(self._flags, listed)
            self._listed, self._listed_bytes = [], 0

    def by_server(self) -> list[Updated]:
        """What was noted of each server's rows; not to be changed."""
        bounds = list(pairwise(self._first_bytes.tolist()))
        if self._flags is not None:
            return [self._flags[first:last] for first, last in bounds]
        listed = np.sort(np.concatenate([np.empty(0, dtype=self._listed_as), *self._listed]))
        listed = listed[np.append(True, listed[1:] != listed[:-1])[: listed.size]]
        ends = np.searchsorted(listed, (8 * self._first_bytes).astype(self._listed_as))
        parts = np.split(listed, ends)[1:-1]
        return [part - self._listed_as.type(8 * first) for part, (first, _) in zip(parts, bounds, strict=True)]

    def clear(self) -> None:
        """Forget all rows."""
        self._flags = None
        self._listed, self._listed_bytes = [], 0


def mark(flags: NDArray[np.uint8], updated: NDArray[np.integer]) -> None:
    """Set bits: those of other flags, uint8 of the same size, or those at positions."""
    if updated.dtype == flags.dtype:
        np.bitwise_or(flags, updated, out=flags)
    else:
        np.bitwise_or.at(flags, updated >> 3, (1 << (updated & 7)).astype(np.uint8))


def flag_bytes(rows: int) -> int:
    """Bytes that hold a bit for each of `rows` rows."""
    return -(-rows // 8)


def flagged(flags: NDArray[np.uint8], rows: int) -> NDArray[np.int64]:
    """Positions of the bits that are set among the first `rows`, ascending, int64 `[n]`; low bits of a byte first."""
    return np.flatnonzero(np.unpackbits(flags, count=rows, bitorder="little"))
