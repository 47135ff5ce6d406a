"""Counts integers of 64 bits and texts, and gives them their ids, natively.

The definition is `data_prep.vocabularies.wide_values`.

Legend: `n` rows, `V` values of a vocabulary.
"""

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.text.number_counts import NumberColumn, NumberCounter

_FIRST_BITS = 10
_LEAST_SPAN, _MOST_SPREAD = 1 << 16, 8
"""A table of near values may have up to so many places in all, or up to so many for each value."""
_SLOT = np.dtype([("value", np.int64), ("number", np.int64)])

Ids = NDArray[np.int32] | NDArray[np.int64]
"""Ids `[n]`, which may lie apart from each other, as a column of a matrix does."""


class TextColumn(NamedTuple):
    """Rows of texts, whose memory is that of the caller.

    Attributes:
        characters: address of those of all texts; None where there are none.
        offsets: address of where the characters of each begin and end, int32 `[offset + n + 1 or more]`.
        present: as in `NumberColumn`.
        offset: number of the first row in `offsets` and `present`.
    """

    characters: int | None
    offsets: int
    present: int | None
    offset: int


class IntegerCounter(NumberCounter):
    """Counts the int64 values of one column; missing ones are not counted.

    Memory is 32 to 64 bytes for each distinct value, and half as much again while the table grows.
    """

    def __init__(self) -> None:
        super().__init__(_SLOT, _FIRST_BITS, _library().count_integers, _library().move_integers)

    def tally(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The values, in no order, and their counts, int64 `[V]` each."""
        used = self._slots[self._slots["number"] > 0]
        return used["value"].copy(), used["number"].copy()


class IntegerIds:
    """Ids 1 .. V for the integers given, 0 for all others and for missing ones.

    Values that lie close to each other are looked up in a table of all integers between them, others in a hash table;
    memory is at most 64 bytes for each value.

    Args:
        values: distinct values `[V]` in the order of their ids.
    """

    def __init__(self, values: NDArray[np.int64]) -> None:
        values = np.ascontiguousarray(values, dtype=np.int64)
        self._near: NDArray[np.uint32] | None = None
        self._first = int(values.min()) if len(values) else 0
        span = int(values.max()) - self._first + 1 if len(values) else 1
        if span <= max(_LEAST_SPAN, _MOST_SPREAD * len(values)) and len(values) < 1 << 32:
            self._near = np.zeros(span + 1, dtype=np.uint32)
            self._near[values - self._first] = np.arange(1, len(values) + 1)
            return
        self._bits = max(1, (2 * len(values)).bit_length())
        self._slots = np.zeros(1 << self._bits, dtype=_SLOT)
        _library().fill_integers(values.ctypes.data, len(values), self._slots.ctypes.data, self._bits)

    def write(self, column: NumberColumn, ids: Ids) -> None:
        """Write the ids of the rows of a column."""
        if self._near is None:
            _library().find_integers(self._slots.ctypes.data, self._bits, *column, *_place(ids))
            return
        first = self._first % (1 << 64)
        _library().find_near_integers(self._near.ctypes.data, len(self._near) - 1, first, *column, *_place(ids))


class HashedIntegerIds:
    """Ids 1 .. rows - 1 by hashing; 0 for missing integers.

    Args:
        rows: of the table, 2 or more.
    """

    def __init__(self, rows: int) -> None:
        self._ids = rows - 1

    def write(self, column: NumberColumn, ids: Ids) -> None:
        """Write the ids of the rows of a column."""
        _library().hash_integers(self._ids, *column, *_place(ids))


class TextTable:
    """Distinct texts with their counts, numbered as they came; missing ones are not counted.

    One thread at a time may add texts. Memory is that of the distinct texts, and 32 to 48 bytes for each.

    Raises:
        MemoryError: there is not enough memory.
    """

    def __init__(self) -> None:
        self._table = ctypes.c_void_p(_library().create_texts())
        if not self._table:
            raise MemoryError("texts of a table")

    def __del__(self) -> None:
        if self._table:
            _library().destroy_texts(self._table)

    def add(self, column: TextColumn, rows: int) -> None:
        """Count `rows` rows of a column.

        Raises:
            MemoryError: the table is of no use from then on.
        """
        if not _library().count_texts(self._table, *column, rows):
            raise MemoryError("texts of a table")

    @property
    def values(self) -> int:
        """How many distinct texts there are."""
        return self._sizes()[0]

    def tally(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """The characters of the texts as they came, where each begins and ends `[V + 1]`, and their counts `[V]`."""
        values, size = self._sizes()
        characters, offsets = np.empty(size, dtype=np.uint8), np.zeros(values + 1, dtype=np.int64)
        counts = np.empty(values, dtype=np.int64)
        arrays = characters.ctypes.data, offsets.ctypes.data + offsets.itemsize, counts.ctypes.data
        _library().copy_texts(self._table, *arrays)
        return characters, offsets, counts

    def write(self, column: TextColumn, ids: Ids) -> None:
        """Write the ids of the rows of a column: one more than the number of a text, 0 for others and missing ones."""
        _library().find_texts(self._table, *column, *_place(ids))

    def _sizes(self) -> tuple[int, int]:
        sizes = (ctypes.c_int64 * 2)()
        _library().size_of_texts(self._table, sizes)
        return sizes[0], sizes[1]


def _place(ids: Ids) -> tuple[int, ...]:
    """Number, distance, address and size of ids that are to be written."""
    return len(ids), ids.strides[0] // ids.itemsize, ids.ctypes.data, ids.itemsize


@cache
def _library() -> ctypes.CDLL:
    library = shared_library.load("wide_ids")
    address, number = ctypes.c_void_p, ctypes.c_int64
    place = (number, number, number, address, number)
    functions: dict[str, tuple[type | None, tuple[type, ...]]] = {
        "count_integers": (number, (address, number, address, address, number, number, number, address)),
        "move_integers": (None, (address, number, address, number)),
        "fill_integers": (None, (address, number, address, number)),
        "find_integers": (None, (address, number, address, address, *place)),
        "find_near_integers": (None, (address, number, ctypes.c_uint64, address, address, *place)),
        "hash_integers": (None, (number, address, address, *place)),
        "create_texts": (address, ()),
        "destroy_texts": (None, (address,)),
        "count_texts": (number, (address, address, address, address, number, number)),
        "size_of_texts": (None, (address, address)),
        "copy_texts": (None, (address, address, address, address)),
        "find_texts": (None, (address, address, address, address, *place)),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
