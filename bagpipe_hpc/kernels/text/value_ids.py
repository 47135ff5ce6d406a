"""Counts categorical values and gives them ids, natively; `data_prep.vocabularies.vocabulary` is the definition.

Legend: `n` rows, `F` tables, `V` values of a vocabulary.
"""

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.text.number_counts import NumberColumn, NumberCounter

_COUNT_BITS = np.uint64(32)
_FIRST_BITS = 12  # A table of 32 KiB: most columns outgrow it, the others stay in the nearest cache.


class ValueCounter(NumberCounter):
    """Counts the uint32 values of one column; missing ones are not counted.

    Memory is 16 to 32 bytes for each distinct value, and half as much again while the table grows.
    """

    def __init__(self) -> None:  # a place of the table is count << 32 | value
        super().__init__(np.uint64, _FIRST_BITS, _library().count_values, _library().move_counts)

    def tally(self, min_count: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The values `[V]` that were seen `min_count` (1 .. 2 ** 32 - 1) times or more, in no order, and their counts.

        A count that reaches 2 ** 32 - 1 stays there.
        """
        frequent = self._slots[self._slots >= np.uint64(min_count) << _COUNT_BITS]
        return frequent.astype(np.uint32), (frequent >> _COUNT_BITS).astype(np.int64)


class IdTables:
    """Ids 1 .. V for the values of a table's vocabulary, or 1 + hash mod (rows - 1); 0 for missing and unknown values.

    Memory is 16 to 32 bytes for each value of a vocabulary.

    Args:
        vocabularies: distinct values of each table, uint32 `[V]`, in the order of their ids; None for one to hash.
        hashed_rows: rows of a table whose values are hashed, 2 or more.
    """

    def __init__(self, vocabularies: Sequence[NDArray[np.uint32] | None], hashed_rows: int) -> None:
        self._hashed_ids = hashed_rows - 1
        bits = [0 if values is None else max(1, (2 * len(values)).bit_length()) for values in vocabularies]
        self._bits = np.array(bits, dtype=np.int64)
        self._slots = [np.zeros(1 << slot_bits, dtype=np.uint64) if slot_bits else None for slot_bits in bits]
        self._addresses = np.array([0 if slots is None else slots.ctypes.data for slots in self._slots], dtype=np.int64)
        for values, slots, slot_bits in zip(vocabularies, self._slots, bits, strict=True):
            if values is not None and slots is not None:
                contiguous = np.ascontiguousarray(values, dtype=np.uint32)
                _library().fill_vocabulary(contiguous.ctypes.data, len(contiguous), slots.ctypes.data, slot_bits)

    def map_rows(
        self,
        columns: Sequence[NumberColumn],
        ids: NDArray[np.int32] | NDArray[np.int64],
        tables: Sequence[int],
        places: Sequence[int],
    ) -> None:
        """Write the ids of some columns.

        Args:
            columns: their values, uint32.
            ids: of all columns, `[n, F]`, contiguous; those of these columns are written.
            tables: number of each column's table.
            places: number of each column among the F.
        """
        slots, bits = self._addresses[list(tables)], self._bits[list(tables)]
        rows_of = np.array([(column.values, column.present or 0, column.offset) for column in columns], dtype=np.int64)
        values, present, offsets = np.ascontiguousarray(rows_of.T)
        arrays = (array.ctypes.data for array in (values, present, offsets, slots, bits))
        function = _library().map_rows_to_int32 if ids.dtype == np.int32 else _library().map_rows_to_int64
        where = np.array(places, dtype=np.int64)
        sizes = self._hashed_ids, len(ids), len(columns)
        function(*arrays, *sizes, where.ctypes.data, ids.shape[1], ids.ctypes.data)


@cache
def _library() -> ctypes.CDLL:
    library = shared_library.load("value_ids")
    address, number = ctypes.c_void_p, ctypes.c_int64
    library.count_values.restype = number
    library.count_values.argtypes = [address, number, address, address, number, number, number, address]
    library.move_counts.restype = library.fill_vocabulary.restype = None
    library.move_counts.argtypes = library.fill_vocabulary.argtypes = [address, number, address, number]
    for function in (library.map_rows_to_int32, library.map_rows_to_int64):
        function.restype = None
        function.argtypes = [*[address] * 5, number, number, number, address, number, address]
    return library
