"""Reads the columns of a Parquet file as fields of a schema: whatever their type, values mean what their text would.

Shapes: `n` rows of a block.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.formats.columns import Column, Dense, Group, Label, Sparse, SparseList, Time, Values, Weight
from data_prep.formats.delimited import BadLine, RowsOf
from data_prep.formats.fields import problem, read_fields, shown, text_type, value_type
from data_prep.schema.missing_values import number_of, without_missing

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Units of timestamps."""
_BOOLEANS = {"true": "1", "false": "0"}
"""Words for booleans, in small letters."""
_TYPE_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


class ParquetFields:
    """Reads blocks of columns.

    Args:
        kinds: the used columns, which have the file's names.
        missing: texts that mean that a value is missing.
        rows_of: makes parsed rows of the columns' fields.
    """

    def __init__(self, kinds: Sequence[Column], missing: Sequence[str], rows_of: RowsOf) -> None:
        self._kinds = kinds
        self._missing = missing
        self._rows_of = rows_of

    def parse(self, block: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadLine]]:
        """The good rows, and the bad ones with their numbers in the block."""
        try:
            return self._rows(block), []
        except _TYPE_ERRORS:
            bad = self._bad_rows(block, 0)
        good = np.ones(len(block), dtype=np.bool_)
        good[[row.index for row in bad]] = False
        return self._rows(block.filter(pa.array(good))), bad

    def _rows(self, block: pa.RecordBatch) -> pa.RecordBatch:
        fields = {kind.name: read_column(block.column(kind.name), kind, self._missing) for kind in self._kinds}
        return self._rows_of(fields)

    def _bad_rows(self, block: pa.RecordBatch, first: int) -> list[BadLine]:
        """The bad rows of a block that holds at least one, found by bisection."""
        if len(block) == 1:
            return [BadLine(first, self._reason(block))]
        bad: list[BadLine] = []
        half = len(block) // 2
        for at, part in ((0, block.slice(0, half)), (half, block.slice(half))):
            try:
                self._rows(part)
            except _TYPE_ERRORS:
                bad += self._bad_rows(part, first + at)
        return bad

    def _reason(self, row: pa.RecordBatch) -> str:
        """What is wrong with a row."""
        for kind in self._kinds:
            try:
                read_column(row.column(kind.name), kind, self._missing)
            except _TYPE_ERRORS as error:
                try:
                    value = row.column(kind.name)[0].as_py()
                except UnicodeDecodeError as no_text:
                    return f"{kind.name} holds {shown(no_text.object)}, which is no UTF-8 text"
                field = _written(value)
                if isinstance(value, list):
                    found = _item_problem(kind, value)
                else:
                    found = problem(kind, b"" if self._is_missing(row.column(kind.name)) else field)
                return f"{kind.name} is {shown(field)}{found or f', which cannot be read: {error}'}"
        return "it cannot be read"

    def _is_missing(self, value: pa.Array) -> bool:
        """Whether a value `[1]` is missing."""
        try:
            return bool(_present(value, self._missing).null_count)
        except _TYPE_ERRORS:  # not a text
            return False


def _item_problem(kind: Column, items: Sequence[Any]) -> str | None:
    """What is wrong with a list, as words to put after it; None where that is not known."""
    if not isinstance(kind, SparseList):
        return None
    for item in items:
        value, weight = (item["value"], item["weight"]) if kind.weights is not None and item else (item, 1)
        for part, of_kind in ((value, Sparse("", kind.values)), (weight, Dense(""))):
            if part is None:
                return f", which holds {item!r:.80}, and no value may be missing"
            text = _written(int(part) if isinstance(part, float) and part.is_integer() else part)
            if found := problem(of_kind, text):
                return f", which holds {shown(text)}{found}"
    return None


def unreadable(kind: Column, found: pa.DataType) -> str | None:
    """Why a column of this type cannot hold fields of a kind, and which types could; None where it can."""
    found = _plain(found)
    numbers = pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)
    numbers_or_booleans = numbers or pa.types.is_boolean(found)
    words = pa.types.is_string(found) or pa.types.is_binary(found)
    match kind:
        case SparseList() if pa.types.is_list(found):
            return _unreadable_items(kind, found)
        case SparseList():
            fits, wanted = words, "lists, or text with a separator"
        case Time():
            fits = numbers or words or pa.types.is_timestamp(found) or pa.types.is_date(found)
            wanted = "timestamps, dates, integers or text"
        case Label(positive=positive) if positive and numbers_or_booleans and not _equal_words(positive, found):
            return (
                f"holds {found}, no value of which can be one of positive = {list(positive)!r:.80}: give numbers, of "
                "booleans true or false, or at_least, or leave positive out where labels are 0 and 1"
            )
        case Label() | Dense() | Weight():
            fits = numbers_or_booleans or words
            wanted = "numbers, booleans or text"
        case _:
            fits = numbers_or_booleans or words
            wanted = "integers or text"
    return None if fits else f"holds {found} instead of {wanted}"


def has_weights(found: pa.DataType) -> bool:
    """Whether a type is a list of values with weights."""
    plain = _plain(found)
    item = plain.value_type if pa.types.is_list(plain) else plain
    return bool(pa.types.is_struct(item)) and {"value", "weight"} <= {field.name for field in item}


def _equal_words(words: Sequence[str], found: pa.DataType) -> list[pa.Scalar]:
    """The words that some value of a type without texts equals, as numbers of that type; booleans are 0 and 1."""
    if pa.types.is_boolean(found):
        numbers = _equal_words([_BOOLEANS.get(word.lower(), word) for word in words], pa.uint8())
        return [number for number in numbers if number.as_py() <= 1]
    return [number for word in words if (number := number_of(word, found)) is not None]


def _unreadable_items(kind: SparseList, found: pa.ListType) -> str | None:
    """As `unreadable`, for lists."""
    item = found.value_type
    if kind.weights is None:
        cure = ", which have weights" if has_weights(found) else ""
        problem = unreadable(Sparse("", kind.values), item)
        return problem and f"holds {found}{cure} instead of lists of integers or text"
    if not has_weights(found):
        return f"holds {found} instead of lists of structs of value and weight"
    parts = (
        unreadable(Sparse("", kind.values), item.field("value").type),
        unreadable(Dense(""), item.field("weight").type),
    )
    return f"holds {found} instead of lists of integers or text with numbers as weights" if any(parts) else None


def read_column(column: pa.Array, kind: Column, missing: Sequence[str]) -> pa.Array:
    """The fields `[n]` of a column, as `fields.read_fields` gives them for text.

    Numbers may have any type that holds them without loss. Booleans are 0 and 1. A missing list is empty.

    Args:
        column: values of a type that is not `unreadable`.
        kind: what the column holds.
        missing: texts that mean that a value is missing, as for `without_missing`.

    Raises:
        pyarrow.ArrowInvalid: a field is not what it should be.
    """
    found = _plain(column.type)
    column = _present(column, missing)
    if pa.types.is_string(column.type):
        return _checked(read_fields(column.cast(text_type(kind, as_text=True)), kind), kind)
    match kind:
        case SparseList():
            return _lists(column, kind)
        case Time(written=written):
            return _times(column, written)
        case Label(at_least=None, positive=()):
            return read_fields(_whole(column).cast(pa.string()).cast(pa.binary()), kind)
        case Label(at_least=None, positive=words):
            return _labels_in_words(column, _equal_words(words, found))
        case Label() | Weight() | Dense(log=False):
            return read_fields(_numbers(column), kind)
        case Dense():
            return _whole(column)
        case Sparse(values=values):
            return _values(column, values)
        case Group(values=values):
            return read_fields(_values(column, values), kind)
    raise TypeError(f"{kind} is not read")


def _present(column: pa.Array, missing: Sequence[str]) -> pa.Array:
    """The values `[n]` of a column as texts, numbers or whatever it holds; null where they are missing.

    Raises:
        pyarrow.ArrowInvalid: a text is not UTF-8.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    plain = _plain(column.type)
    if pa.types.is_string(plain) or pa.types.is_binary(plain):
        column = column.cast(pa.string())
        column.validate(full=True)  # whoever wrote the file may have called any bytes a text
    return without_missing(column, missing)


def _plain(found: pa.DataType) -> pa.DataType:
    """The type without a dictionary, and with the 32-bit forms of texts and lists."""
    if pa.types.is_dictionary(found):
        return _plain(found.value_type)
    if pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return pa.string()
    if pa.types.is_large_binary(found) or pa.types.is_binary_view(found) or pa.types.is_fixed_size_binary(found):
        return pa.binary()
    if pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        return pa.list_(found.value_type)
    return found


def _labels_in_words(column: pa.Array, positive: Sequence[pa.Scalar]) -> pa.UInt8Array:
    """Labels `[n]`, 1 where a number is one of those that are positive.

    Raises:
        pyarrow.ArrowInvalid: a label is missing.
    """
    if column.null_count:
        raise pa.ArrowInvalid("a label is missing")
    equal = [pc.equal(column, number.cast(column.type)) for number in positive]
    return reduce(pc.or_, equal).cast(pa.uint8())


def _numbers(column: pa.Array) -> pa.DoubleArray:
    """Decimal numbers, float64."""
    return column.cast(pa.float64(), safe=not pa.types.is_integer(column.type))


def _whole(column: pa.Array) -> pa.Int64Array:
    """Integers, int64."""
    if pa.types.is_floating(column.type):
        column = _numbers(column)
    return column.cast(pa.int64())


def _values(column: pa.Array, values: Values) -> pa.Array:
    """The values of a column of numbers."""
    if values is Values.TEXT and pa.types.is_integer(column.type):
        return column.cast(pa.string())  # also numbers beyond signed 64 bits
    whole = _whole(column)
    if values is Values.HEX:
        return whole.cast(pa.uint32())
    return whole.cast(pa.string()) if values is Values.TEXT else whole


def _times(column: pa.Array, written: str) -> pa.Int64Array:
    """Seconds since 1970, int64; fractions are rounded down."""
    if pa.types.is_temporal(column.type):
        if column.null_count:
            raise pa.ArrowInvalid("a time is missing")
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("ms"))
        return pa.array(column.cast(pa.int64()).to_numpy() // _PER_SECOND[column.type.unit])
    return read_fields(_whole(column).cast(pa.string()).cast(pa.binary()), Time("", written))


def _lists(column: pa.Array, kind: SparseList) -> pa.ListArray:
    """Lists of values, or of values with weights."""
    wanted = value_type(kind)
    plain = column.cast(pa.list_(column.type.value_type))
    lengths = pc.list_value_length(plain).fill_null(0).to_numpy()
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    flat = plain.flatten()
    if kind.weights is not None:
        parts = [_item(flat.field("value"), kind.values), _numbers(flat.field("weight")).cast(pa.float32(), safe=False)]
        if parts[1].null_count or not np.isfinite(parts[1].to_numpy()).all():
            raise pa.ArrowInvalid("a weight is missing or too large")
        read = pa.StructArray.from_arrays(parts, names=["value", "weight"])
    else:
        read = _item(flat, kind.values)
    return pa.ListArray.from_arrays(pa.array(offsets), read).cast(wanted)


def _item(flat: pa.Array, values: Values) -> pa.Array:
    """The values of all lists."""
    read = read_column(flat, Sparse("", values), ())
    if read.null_count:
        raise pa.ArrowInvalid("a list holds a missing value")
    if values is Values.TEXT and pc.any(pc.equal(pc.binary_length(read), 0), min_count=0).as_py():
        raise pa.ArrowInvalid("a value of a list is empty")
    return read


def _checked(read: pa.Array, kind: Column) -> pa.Array:
    """Texts without a zero byte, which HDF5 could not hold."""
    if isinstance(kind, Sparse | SparseList) and kind.values is Values.TEXT:
        texts = read if isinstance(kind, Sparse) else read.flatten()
        if pa.types.is_struct(texts.type):
            texts = texts.field("value")
        if pc.any(pc.match_substring(texts, "\0"), min_count=0).as_py():
            raise pa.ArrowInvalid("it holds a zero byte")
    return read


def _written(value: object) -> bytes:
    """A value as it would be written in text."""
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    return str(value).encode(errors="replace")
