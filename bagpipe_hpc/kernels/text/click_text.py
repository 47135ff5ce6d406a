"""Criteo's click text to columns, natively; `data_prep.formats.criteo` is the definition.

Legend: `n` rows.
"""

import ctypes
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library

INTEGERS, TABLES = 13, 26
_TILE_ROWS = 64
_MOST_BYTES = (1 << 32) - 1


@dataclass(frozen=True)
class ClickColumns:
    """The rows of a block of text.

    Attributes:
        label: 0 or 1, uint8 `[n]`.
        dense: logarithms of counts, float32 `[n, 13]`; those of `large_counts` are not yet there.
        values: categorical values of each table, uint32 `[26, n or more]`; 0 where missing.
        present: a bit for each value, lowest first, 1 where it is not missing, uint8 `[26, n / 8 or more]`.
        missing: missing values of each table, int64 `[26]`.
        large_places: where in the flat `dense` the logarithms of `large_counts` belong, int64 `[m]`.
        large_counts: counts that the table of logarithms does not reach, int64 `[m]`.
    """

    label: NDArray[np.uint8]
    dense: NDArray[np.float32]
    values: NDArray[np.uint32]
    present: NDArray[np.uint8]
    missing: NDArray[np.int64]
    large_places: NDArray[np.int64]
    large_counts: NDArray[np.int64]


def read_clicks(text: bytes, lines: int, log_of_count: NDArray[np.float32]) -> ClickColumns | None:
    """Read a block of whole lines.

    Args:
        text: lines that end with LF, CRLF or CR; the last may lack its end.
        lines: number of lines, or more.
        log_of_count: what the integers 0, 1, 2, ... become, contiguous, one or more; negative ones are taken as 0.

    Returns:
        The rows; None if a line holds anything but a plain row, which is for the definition to judge.
    """
    if len(text) > _MOST_BYTES:
        return None
    capacity = -(-lines // _TILE_ROWS) * _TILE_ROWS
    label = np.empty(capacity, dtype=np.uint8)
    dense = np.empty((capacity, INTEGERS), dtype=np.float32)
    values = np.empty((TABLES, capacity), dtype=np.uint32)
    present = np.empty((TABLES, capacity // 8), dtype=np.uint8)
    missing = np.zeros(TABLES, dtype=np.int64)
    large_places = np.empty(capacity * INTEGERS, dtype=np.int64)
    large_counts = np.empty(capacity * INTEGERS, dtype=np.int64)
    larges = ctypes.c_int64()
    rows: int = _library().read_clicks(
        text,
        len(text),
        capacity,
        *(array.ctypes.data for array in (label, dense, values, present, missing, log_of_count)),
        len(log_of_count),
        large_places.ctypes.data,
        large_counts.ctypes.data,
        ctypes.byref(larges),
    )
    if rows < 0:
        return None
    found = larges.value
    return ClickColumns(
        label[:rows], dense[:rows], values, present, missing, large_places[:found], large_counts[:found]
    )


@cache
def _library() -> ctypes.CDLL:
    library = shared_library.load("click_text")
    address, number = ctypes.c_void_p, ctypes.c_int64
    library.read_clicks.restype = number
    library.read_clicks.argtypes = [ctypes.c_char_p, number, number, *[address] * 6, number, address, address, address]
    return library
