"""Reads delimited text with native code; a block with anything unusual is left to the definition.

Shapes: `n` rows, `V` values of all lists.
"""

import pyarrow as pa

from bagpipe_hpc.kernels.text.delimited_text import ColumnValues, DelimitedText, Kind, TextColumn
from data_prep.formats.columns import Column, Dense, Group, Label, Sparse, SparseList, Time, Unused, Values, Weight
from data_prep.formats.fields import read_fields, text_type, value_type
from data_prep.formats.layout import TextFields

LIBRARY = "delimited_text"
"""The compiled part of the package."""

_ZERO = b"\0"
_KINDS = {
    Values.HEX: Kind.HEX,
    Values.INTEGER: Kind.INTEGER,
    Values.BUCKET: Kind.INTEGER,
    Values.TEXT: Kind.TEXT,
}
_TYPES = {Kind.LABEL: pa.uint8(), Kind.INTEGER: pa.int64(), Kind.REAL: pa.float64(), Kind.HEX: pa.uint32()}


class NativeFields:
    """Reads the fields of blocks of text.

    Args:
        layout: what the text looks like.
    """

    def __init__(self, layout: TextFields) -> None:
        self._used = [
            (number, column) for number, column in enumerate(layout.columns) if not isinstance(column, Unused)
        ]
        self._text = DelimitedText(
            len(layout.columns),
            layout.separator,
            quoted=layout.quoted,
            missing=layout.missing,
            columns=[_text_column(number, column) for number, column in self._used],
        )

    def read(self, text: bytes) -> dict[str, pa.Array] | None:
        """The fields of each used column, as `fields.read_fields` gives them; None where the definition must read them.

        Args:
            text: whole lines, of which at least one is not empty.

        Raises:
            pyarrow.ArrowInvalid: a field is not what it should be.
        """
        if _ZERO in text or not _is_utf8(text):
            return None
        columns = self._text.read(text)
        if columns is None:
            return None
        return {kind.name: _field(values, kind) for values, (_, kind) in zip(columns, self._used, strict=True)}


def _is_utf8(text: bytes) -> bool:
    """Whether a text is UTF-8, so that all its fields are."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text_column(number: int, column: Column) -> TextColumn:
    """How native code reads a column."""
    match column:
        case Label(positive=(), at_least=None):
            return TextColumn(Kind.LABEL, number)
        case Label(positive=()) | Weight() | Dense(log=False):
            return TextColumn(Kind.REAL, number)
        case Dense() | Time(written="seconds" | "milliseconds"):
            return TextColumn(Kind.INTEGER, number)
        case Sparse(values=values) | Group(values=values):
            return TextColumn(_KINDS[values], number)
        case SparseList(values=values, separator=separator, weights=weights):
            return TextColumn(_KINDS[values], number, separator, weights)
    return TextColumn(Kind.TEXT, number)


def _field(values: ColumnValues, column: Column) -> pa.Array:
    """The fields of a column, from what native code read of them."""
    how = _text_column(0, column)
    if isinstance(column, SparseList):
        return _lists(values, column, how.kind)
    read = _values(values, how.kind, text_type(column, as_text=False))
    return read if how.kind in (Kind.LABEL, Kind.HEX) else read_fields(read, column)


def _lists(values: ColumnValues, column: SparseList, kind: Kind) -> pa.ListArray:
    listed = _values(values, kind, pa.string())
    if column.values is Values.BUCKET:
        listed = read_fields(listed, Sparse(column.name, column.values))
    wanted = value_type(column)
    if values.weights is not None:
        listed = pa.StructArray.from_arrays([listed, pa.array(values.weights)], fields=list(wanted.value_type))
    return pa.ListArray.from_arrays(pa.array(values.offsets), listed, type=wanted)


def _values(values: ColumnValues, kind: Kind, type_of_text: pa.DataType) -> pa.Array:
    """The values `[n]` or `[V]` as an array."""
    present = None if values.present is None else pa.py_buffer(values.present)
    data = pa.py_buffer(values.values)
    if kind is not Kind.TEXT:
        return pa.Array.from_buffers(_TYPES[kind], len(values.values), [present, data], values.missing)
    assert values.text_offsets is not None
    buffers = [present, pa.py_buffer(values.text_offsets), data]
    return pa.Array.from_buffers(type_of_text, len(values.text_offsets) - 1, buffers, values.missing)
