"""Which rows a trainer has written back since it was last asked: a bit for each row of the tables. Pure."""

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.partition import RowPartition


class UpdatedRows:
    """Bits by server and position, as a server wants them: a bit in 1/8 byte a table row.

    Args:
        partition: where each row lies.
    """

    def __init__(self, partition: RowPartition) -> None:
        self._partition = partition
        sizes = [flag_bytes(partition.rows_on(server)) for server in range(partition.servers)]
        self._first_bytes = np.cumsum([0, *sizes])
        self._flags = np.zeros(self._first_bytes[-1], dtype=np.uint8)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Note rows `[N]`, in any order."""
        offsets = self._partition.offset(rows)
        places = (offsets >> 3) + self._first_bytes[self._partition.owner(rows)]
        np.bitwise_or.at(self._flags, places, (1 << (offsets & 7)).astype(np.uint8))

    def flags(self, server: int) -> NDArray[np.uint8]:
        """The bits of a server's rows, a view of `[flag_bytes(rows)]`; see `flagged`."""
        return self._flags[self._first_bytes[server] : self._first_bytes[server + 1]]

    def clear(self) -> None:
        """Forget all rows."""
        self._flags[:] = 0


def flag_bytes(rows: int) -> int:
    """Bytes that hold a bit for each of `rows` rows."""
    return -(-rows // 8)


def flagged(flags: NDArray[np.uint8], rows: int) -> NDArray[np.int64]:
    """Positions, ascending, of the bits that are set among the first `rows`; the lowest bit of a byte is its first."""
    return np.flatnonzero(np.unpackbits(flags, count=rows, bitorder="little"))
