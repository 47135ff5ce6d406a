"""From categorical values to table-local ids: a vocabulary of frequent values, or hashing.

Shapes: `n` values, `V` values of a vocabulary.
"""

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_GOLDEN_RATIO = np.uint32(0x9E3779B1)  # 2 ** 32 / golden ratio: the multiplier of Fibonacci hashing (Knuth, TAOCP 6.4)


class IdMap(Protocol):
    """Gives the values of one categorical column their ids."""

    rows: int
    """Rows of the table: ids are 0 .. rows - 1."""

    def ids(self, column: pa.UInt32Array) -> NDArray[np.int64] | NDArray[np.int32]:
        """Ids `[n]` of values `[n]`; a missing value (null) has id 0."""


class Vocabulary:
    """Ids 1 .. V for the values given, 0 for all others and for missing ones.

    The values lie in a hash table with open addressing that is probed for a whole column at once: numpy's `searchsorted`
    takes several times as long, and pyarrow's `index_in` builds its hash table anew on every call.

    Args:
        values: distinct values `[V]` in the order of their ids.
    """

    def __init__(self, values: NDArray[np.uint32]) -> None:
        self.rows = len(values) + 1
        bits = max(1, (2 * len(values)).bit_length())  # At most half full: probes are short.
        self._shift = np.uint32(32 - bits) if bits < 32 else np.uint32(0)
        self._slot_mask = (1 << bits) - 1
        id_type = np.int32 if len(values) < 1 << 31 else np.int64
        self._slot_ids: NDArray[np.int32] | NDArray[np.int64] = np.zeros(1 << bits, dtype=id_type)
        self._slot_values = np.zeros(1 << bits, dtype=np.uint32)
        self._insert(values)

    @classmethod
    def of_column(cls, column: pa.ChunkedArray, min_count: int) -> "Vocabulary":
        """The values that occur `min_count` times or more, by descending count, equally frequent ones by value.

        Memory while it counts is about 50 bytes for each distinct value.

        Args:
            column: unsigned 32-bit values of the training rows; missing ones are null.
            min_count: fewest occurrences of a value that gets an id of its own, 1 or more.
        """
        tally = pc.value_counts(column.drop_null())
        values: NDArray[np.uint32] = tally.field("values").to_numpy()
        counts: NDArray[np.int64] = tally.field("counts").to_numpy()
        frequent = counts >= min_count
        values, counts = values[frequent], counts[frequent]
        return cls(values[np.lexsort((values, -counts))])

    def ids(self, column: pa.UInt32Array) -> NDArray[np.int64] | NDArray[np.int32]:
        """Ids `[n]` of values `[n]`; a missing value (null) and one outside the vocabulary have id 0."""
        values: NDArray[np.uint32] = column.fill_null(0).to_numpy()
        slots = self._first_slots(values)
        ids = self._slot_ids[slots]
        # Each round moves the values that met another value on to the next slot; an empty slot (id 0) ends a probe.
        met_another = (self._slot_values[slots] != values) & (ids != 0)
        probing = np.flatnonzero(met_another)
        while len(probing):
            slots[probing] = (slots[probing] + 1) & self._slot_mask
            ids[probing] = self._slot_ids[slots[probing]]
            met_another = (self._slot_values[slots[probing]] != values[probing]) & (ids[probing] != 0)
            probing = probing[met_another]
        if column.null_count:
            ids[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return ids

    def _first_slots(self, values: NDArray[np.uint32]) -> NDArray[np.int64]:
        return ((values * _GOLDEN_RATIO) >> self._shift).astype(np.int64) & self._slot_mask

    def _insert(self, values: NDArray[np.uint32]) -> None:
        slots = self._first_slots(values)
        waiting = np.arange(len(values))
        while len(waiting):
            free = waiting[self._slot_ids[slots[waiting]] == 0]
            self._slot_ids[slots[free]] = free + 1  # Of several values for a slot one stays; the others move on.
            waiting = waiting[self._slot_ids[slots[waiting]] != waiting + 1]
            slots[waiting] = (slots[waiting] + 1) & self._slot_mask
        taken = self._slot_ids != 0
        self._slot_values[taken] = values[self._slot_ids[taken] - 1]


class HashedIds:
    """Ids 1 .. rows - 1 by hashing, so that different values may share a row; 0 for missing values.

    The hash is the 64-bit finaliser of MurmurHash3, in integers only and so the same on every machine.

    Args:
        rows: rows of the table, 2 or more.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def ids(self, column: pa.UInt32Array) -> NDArray[np.int64]:
        """Ids `[n]` of values `[n]`."""
        mixed = column.fill_null(0).to_numpy().astype(np.uint64)
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> np.uint64(33)
        ids = (mixed % np.uint64(self.rows - 1)).astype(np.int64) + 1
        if column.null_count:
            ids[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return ids
