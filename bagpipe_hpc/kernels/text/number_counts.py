"""Counts the numbers of a column in a hash table that grows, natively: what `value_ids` and `wide_ids` share."""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike


class NumberColumn(NamedTuple):
    """Rows of a column of numbers, whose memory is that of the caller.

    Attributes:
        values: address of numbers `[offset + n or more]`, contiguous; any number where one is missing.
        present: address of bits, lowest first, 1 where a value is not missing; None if none is missing.
        offset: number of the first row in both.
    """

    values: int
    present: int | None
    offset: int


class NumberCounter:
    """Counts the values of one column; missing ones are not counted.

    Args:
        slot: dtype of a place of the table, all zeros where it is free.
        first_bits: the table begins with `2 ** first_bits` places.
        count: native code that counts until the table is half full.
        move: native code that moves what was counted to a larger table.
    """

    def __init__(self, slot: DTypeLike, first_bits: int, count: Callable[..., int], move: Callable[..., None]) -> None:
        self._bits, self._count, self._move = first_bits, count, move
        self._slots: np.ndarray[Any, Any] = np.zeros(1 << first_bits, dtype=slot)
        self._used = ctypes.c_int64(0)

    def add(self, column: NumberColumn, rows: int) -> None:
        """Count `rows` rows of a column."""
        done = 0
        while done < rows:
            done += self._count(
                self._slots.ctypes.data,
                self._bits,
                column.values,
                column.present,
                column.offset + done,
                rows - done,
                len(self._slots) // 2,
                ctypes.byref(self._used),
            )
            if done < rows:
                self._grow()

    @property
    def values(self) -> int:
        """How many distinct values were seen."""
        return self._used.value

    def _grow(self) -> None:
        self._bits += 1
        slots = np.zeros(1 << self._bits, dtype=self._slots.dtype)
        self._move(self._slots.ctypes.data, len(self._slots), slots.ctypes.data, self._bits)
        self._slots = slots
