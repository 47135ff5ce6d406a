"""Text with a separator between fields to columns, natively; `data_prep.formats.delimited` is the definition.

Legend: `n` rows, `V` values of a column: `n`, or those of all its lists.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library

_MOST_BYTES = (1 << 31) - 1
_SPARE_ENDS, _SPARE_CHARACTERS = 8, 16
_WORD_ROWS = 64


class Kind(IntEnum):
    """What the fields of a column hold, and the type of its values."""

    LABEL = 0
    """`0` or `1`, never missing: uint8."""
    INTEGER = 1
    """An optional minus and 1 to 18 digits: int64."""
    REAL = 2
    """A decimal number, maybe with a point and an exponent: float64, rounded to the nearest."""
    HEX = 3
    """1 to 8 hexadecimal digits: uint32."""
    TEXT = 4
    """Anything: characters one after the other, uint8."""


_TYPES = {Kind.LABEL: np.uint8, Kind.INTEGER: np.int64, Kind.REAL: np.float64, Kind.HEX: np.uint32}


@dataclass(frozen=True)
class TextColumn:
    """A column of the text that is read.

    Attributes:
        kind: of its values.
        number: of the field in a line, from 0.
        separator: between the values of a field that holds a list; None where it holds one value.
        weights: between a value of a list and its weight; None where values have none.
    """

    kind: Kind
    number: int
    separator: str | None = None
    weights: str | None = None


@dataclass(frozen=True)
class ColumnValues:
    """What a column holds.

    Attributes:
        values: `[V]`, of the type of the kind; 0 where a field is missing. Of texts their characters.
        present: a bit for each row, lowest first, 1 where the field is not missing, uint8; None where none is missing,
            and for lists: a missing one has no values.
        missing: missing fields that `present` has.
        offsets: of lists: where the values of each begin and end, int32 `[n + 1]`.
        text_offsets: of texts: where the characters of each begin and end, int32 `[V + 1]`.
        weights: of lists with weights: float32 `[V]`.
    """

    values: NDArray[np.generic]
    present: NDArray[np.uint8] | None
    missing: int
    offsets: NDArray[np.int32] | None
    text_offsets: NDArray[np.int32] | None
    weights: NDArray[np.float32] | None


class _Task(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "number", "separator", "weights")),
        *((name, ctypes.c_void_p) for name in ("values", "present", "list_ends", "text_ends", "value_weights")),
        *((name, ctypes.c_int64) for name in ("missing", "count", "bytes")),
    )


class DelimitedText:
    """Reads blocks of whole lines, from any thread.

    Args:
        fields: number of fields of a line.
        separator: the character between them.
        quoted: whether a field may stand in double quotes.
        missing: texts that mean that a value is missing, besides an empty field.
        columns: those to read.
    """

    def __init__(
        self, fields: int, separator: str, *, quoted: bool, missing: Sequence[str], columns: Sequence[TextColumn]
    ) -> None:
        self._fields = fields
        self._separator = ord(separator)
        self._quoted = quoted
        words = [word.encode() for word in missing if word]
        self._words = b"".join(words)
        self._word_ends = np.cumsum([len(word) for word in words], dtype=np.int64)
        self._columns = tuple(columns)

    def read(self, text: bytes) -> list[ColumnValues] | None:
        """The values of each column.

        Args:
            text: lines that end with LF, CRLF or CR; the last may lack its end, and empty ones are passed over.

        Returns:
            The columns, of n rows; None where a line holds anything unusual, which is for the definition to judge.
        """
        if len(text) > _MOST_BYTES:
            return None
        quoted = self._quoted and b'"' in text
        most_rows = (len(text) + 1) // self._fields
        starts = np.empty(most_rows, dtype=np.uint32)
        ends = np.empty((most_rows + 1) * self._fields + _SPARE_ENDS, dtype=np.uint32)
        index = (starts.ctypes.data, ends.ctypes.data)
        rows: int = _library().index_fields(text, len(text), self._fields, self._separator, quoted, most_rows, *index)
        if rows < 0:
            return None
        opened = [_Output(column, rows, lambda number: self._bytes_of(index, rows, number)) for column in self._columns]
        tasks = (_Task * len(opened))(*(output.task for output in opened))
        is_good = _library().read_columns(
            text,
            len(text),
            *index,
            self._fields,
            rows,
            quoted,
            self._words,
            self._word_ends.ctypes.data,
            len(self._word_ends),
            tasks,
            len(opened),
        )
        return [output.found(task) for output, task in zip(opened, tasks, strict=True)] if is_good else None

    def _bytes_of(self, index: tuple[int, int], rows: int, number: int) -> int:
        total: int = _library().field_bytes(*index, self._fields, rows, number)
        return total


class _Output:
    """The arrays of a column, and the task that fills them; `bytes_of` says how many characters a column has."""

    def __init__(self, column: TextColumn, rows: int, bytes_of: Callable[[int], int]) -> None:
        is_list, is_text = column.separator is not None, column.kind == Kind.TEXT
        characters = bytes_of(column.number) if is_list or is_text else 0
        most = (characters + rows) // 2 if is_list else rows
        self._rows = rows
        self._values: NDArray[np.generic]
        if is_text:
            self._values = np.empty(characters + _SPARE_CHARACTERS, dtype=np.uint8)
        else:
            self._values = np.empty(most, dtype=_TYPES[column.kind])
        words = 0 if is_list or column.kind == Kind.LABEL else -(-rows // _WORD_ROWS)
        self._present = np.empty(8 * words, dtype=np.uint8)
        self._offsets = np.zeros(rows + 1, dtype=np.int32) if is_list else None
        self._text_offsets = np.zeros(most + 1, dtype=np.int32) if is_text else None
        self._weights = np.empty(most, dtype=np.float32) if column.weights else None
        self.task = _Task(
            kind=column.kind,
            number=column.number,
            separator=ord(column.separator or "\0"),
            weights=ord(column.weights or "\0"),
            values=self._values.ctypes.data,
            present=self._present.ctypes.data,
            list_ends=_behind_first(self._offsets),
            text_ends=_behind_first(self._text_offsets),
            value_weights=None if self._weights is None else self._weights.ctypes.data,
        )

    def found(self, task: _Task) -> ColumnValues:
        """What was read."""
        count = self._rows if self._offsets is None else task.count
        return ColumnValues(
            self._values[: count if self._text_offsets is None else task.bytes],
            self._present if task.missing else None,
            task.missing,
            self._offsets,
            None if self._text_offsets is None else self._text_offsets[: count + 1],
            None if self._weights is None else self._weights[:count],
        )


def _behind_first(offsets: NDArray[np.int32] | None) -> int | None:
    return None if offsets is None else offsets.ctypes.data + offsets.itemsize


@cache
def _library() -> ctypes.CDLL:
    library = shared_library.load("delimited_text")
    address, number, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    library.index_fields.argtypes = [text, *[number] * 5, address, address]
    library.field_bytes.argtypes = [address, address, number, number, number]
    library.read_columns.argtypes = [
        text,
        number,
        address,
        address,
        *[number] * 3,
        text,
        address,
        number,
        address,
        number,
    ]
    for function in (library.index_fields, library.field_bytes, library.read_columns):
        function.restype = number
    return library
