"""`RowCopies` in C++ (`csrc/row_operations.cpp`): rows are prefetched, and long results written past the cache.

It takes no torch: servers do without that.
"""

from ctypes import c_int32, c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.rows.copies import NumpyRowCopies, Places, RowCopies, Rows, check_places

_LIBRARY = "row_operations"
_COPY_ARGUMENTS = (c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int32)
_ADD_ARGUMENTS = (c_void_p, c_int64, c_void_p, c_int64, c_void_p)
_MOST_ROWS = int(np.iinfo(np.int32).max)
_THREADS = 1
"""One only, since movers and servers work beside other threads."""


def row_copies(backend: str) -> RowCopies:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return NativeRowCopies() if use_native(backend, _LIBRARY) else NumpyRowCopies()


class NativeRowCopies:
    """Native `RowCopies`, which describes the methods; arrays too large for native code's int32 are left to NumPy.

    Raises:
        ConfigError: the library was not built or does not load.
    """

    def __init__(self) -> None:
        library = shared_library.load(_LIBRARY)
        self._gather, self._scatter = library.gather_records, library.scatter_records
        for kernel in (self._gather, self._scatter):
            kernel.argtypes, kernel.restype = _COPY_ARGUMENTS, None
        self._add = library.add_records
        self._add.argtypes, self._add.restype = _ADD_ARGUMENTS, None
        self._numpy = NumpyRowCopies()

    def gather(self, rows: Rows, places: Places, into: Rows) -> None:
        """Copy rows into `into`; rows ahead are prefetched."""
        if len(rows) > _MOST_ROWS:
            self._numpy.gather(rows, places, into)
        else:
            self._copy(self._gather, rows, places, into, into)

    def scatter(self, rows: Rows, places: Places, records: Rows) -> None:
        """Copy `records` to their places; rows ahead are prefetched."""
        if len(rows) > _MOST_ROWS:
            self._numpy.scatter(rows, places, records)
        else:
            self._copy(self._scatter, rows, places, records, rows)

    def add(self, rows: Rows, places: Places, records: Rows) -> None:
        """Add `records` to their places in one pass, one by one; rows ahead are prefetched."""
        if len(rows) > _MOST_ROWS:
            self._numpy.add(rows, places, records)
        else:
            slots = _checked_slots(rows, places, records, rows)
            self._add(rows.ctypes.data, rows.shape[1], slots.ctypes.data, slots.size, records.ctypes.data)

    def _copy(self, kernel: Any, rows: Rows, places: Places, records: Rows, written: Rows) -> None:
        slots = _checked_slots(rows, places, records, written)
        tables, widths = (c_void_p * 1)(rows.ctypes.data), (c_int64 * 1)(rows.shape[1])
        kernel(tables, widths, 1, slots.ctypes.data, slots.size, records.ctypes.data, _THREADS)


def _checked_slots(rows: Rows, places: Places, records: Rows, written: Rows) -> NDArray[np.int32]:
    """The places as native code takes them, once all that it will touch is there, and what it writes may be written."""
    for array, shape in ((rows, rows.shape), (records, (places.size, rows.shape[1]))):
        if array.dtype != np.float32 or array.shape != shape or not array.flags.c_contiguous:
            raise ValueError(f"{array.dtype} {list(array.shape)}: native code needs contiguous float32 {list(shape)}")
    if rows.shape[1] == 0:
        raise ValueError(f"rows of {list(rows.shape)}: native code needs one number a row at least")
    if not written.flags.writeable:
        raise ValueError(f"an array of {list(written.shape)} is read-only: native code would write to it all the same")
    check_places(places, len(rows))
    return np.ascontiguousarray(places, dtype=np.int32)
