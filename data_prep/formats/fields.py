"""Turns text fields into numbers, values, labels and lists, a column at a time, and says what is wrong with a field.

Shapes: `n` fields, `V` values of a column of lists.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.formats.buckets import buckets
from data_prep.formats.columns import Column, Dense, Group, Label, Sparse, SparseList, Time, Values, Weight
from data_prep.formats.hex_columns import DIGITS, parse_hex
from data_prep.formats.time_texts import write_times
from data_prep.formats.value_lists import parse_lists
from data_prep.vocabularies.wide_values import hash_keys

_INTEGER = re.compile(rb"-?[0-9]+")
_NUMBER = re.compile(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_HEX = re.compile(rb"[0-9a-fA-F]{1,%d}" % DIGITS)
_INT64_DIGITS = 19
_SHOWN_CHARACTERS = 40
_FLOAT32_LIMIT = (2 - 2.0**-24) * 2.0**127
"""From here on, float32 rounds a number to infinity."""
_VALUE_TYPES = {
    Values.HEX: pa.uint32(),
    Values.BUCKET: pa.uint32(),
    Values.NUMBER: pa.uint32(),
    Values.INTEGER: pa.int64(),
    Values.TEXT: pa.string(),
}
_WITH_ZONES = {"z", "Z", "s"}
_ZERO_BEFORE = r"\b0(\d)\b"
_CONVERSION = re.compile(r"%[-_0^#]*(?:[EO](?=[a-zA-Z]))?(.)", re.DOTALL)
"""A conversion of C's strptime, with flags and a modifier that mean nothing when times are read, or `%%`."""
_WRITTEN_AS = {"k": "%H", "l": "%I", "n": " ", "t": " "}
"""What times are written out with, where Arrow does not write a conversion, or blanks are as good."""
_PYTHON_FORMS = {
    "F": "%Y-%m-%d",
    "T": "%H:%M:%S",
    "R": "%H:%M",
    "D": "%m/%d/%y",
    "r": "%I:%M:%S %p",
    "e": "%d",
    "h": "%b",
    **_WRITTEN_AS,
}
"""What Python has in place of conversions that it lacks."""
_PADDED = ("e", "k", "l")
"""Conversions of numbers of which one digit has a blank before it, not a zero."""
_PADDING = re.compile(r" (?=\d(?!\d))")
_SOME_TIME = datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)
_PER_SECOND = {"seconds": 1, "milliseconds": 1000}


def value_type(column: Sparse | SparseList) -> pa.DataType:
    """The type of a feature's column in parsed rows."""
    value = _VALUE_TYPES[column.values]
    if isinstance(column, Sparse):
        return value
    return pa.list_(value if column.weights is None else pa.struct({"value": value, "weight": pa.float32()}))


def text_type(column: Column, as_text: bool) -> pa.DataType:
    """The type as which pyarrow's parser reads a column; with `as_text` (suspect characters), text."""
    match column:
        case Sparse(values=Values.TEXT) | SparseList(values=Values.TEXT) | Group(values=Values.TEXT):
            return pa.string()
        case Sparse(values=Values.INTEGER | Values.BUCKET) | Group() | Dense(log=True) if not as_text:
            return pa.int64()
        case Dense() | Weight() if not as_text:
            return pa.float64()
    return pa.binary()


def read_fields(column: pa.Array, kind: Column) -> pa.Array:
    """Read the fields of a column.

    Args:
        column: `[n]`, of `text_type`, missing fields as nulls.
        kind: description of the column.

    Returns:
        `[n]`: for a label uint8, 0 or 1; for a weight float32; for a dense feature int64 (with `log`) or float64, null
        where it is missing; for a time and a group int64; for values and lists `value_type`.

    Raises:
        pyarrow.ArrowInvalid: a field is not what it should be; which one is for the caller to find.
    """
    match kind:
        case Label():
            return _labels(column, kind)
        case Weight():
            return _sample_weights(column)
        case Dense(log=log):
            numbers = _numbers(column, log)
            if not log and _beyond_float32(numbers):
                raise pa.ArrowInvalid("a dense feature is no finite number")
            return numbers
        case Sparse(values=values):
            return _values(column, values)
        case SparseList(values=values):
            return parse_lists(column, kind, value_type(kind), lambda texts: _values(texts, values), _id_weights)
        case Time(written=written):
            return _times(column, written)
        case Group(values=values):
            return _groups(column, values)
    raise TypeError(f"{kind} is not read")


def _labels(column: pa.BinaryArray, kind: Label) -> pa.UInt8Array:
    """Labels `[n]`; a label of one digit is read as text, since pyarrow would read 01 as the number 1."""
    if kind.positive or kind.at_least is not None:
        if column.null_count:
            raise pa.ArrowInvalid("a label is missing")
        if kind.positive:
            return pc.is_in(column, pa.array(kind.positive, pa.string()).cast(pa.binary())).cast(pa.uint8())
        return pc.greater_equal(_numbers(column, log=False), kind.at_least).cast(pa.uint8())
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    if column.null_count or (np.diff(offsets) != 1).any():
        raise pa.ArrowInvalid("a label is no single character")
    label = np.frombuffer(column.buffers()[2], np.uint8, len(column), int(offsets[0])) - ord("0")
    if label.max(initial=0) > 1:
        raise pa.ArrowInvalid("a label is neither 0 nor 1")
    return pa.array(label)


def _sample_weights(column: pa.Array) -> pa.FloatArray:
    """Weights of samples `[n]`, float32, finite and 0 or more."""
    numbers = _numbers(column, log=False)
    if column.null_count or _beyond_float32(numbers) or pc.any(pc.less(numbers, 0), min_count=0).as_py():
        raise pa.ArrowInvalid("a weight is missing, negative or too large")
    return numbers.cast(pa.float32(), safe=False)


def _id_weights(texts: pa.Array) -> pa.FloatArray:
    """Weights of ids `[V]`, float32 and finite."""
    numbers = _numbers(texts.cast(pa.binary()), log=False)
    if _beyond_float32(numbers):
        raise pa.ArrowInvalid("a weight is too large")
    return numbers.cast(pa.float32(), safe=False)


def _beyond_float32(numbers: pa.DoubleArray) -> bool:
    """Whether any of the numbers `[n]` is not finite as float32."""
    present: NDArray[Any] = numbers.fill_null(0).to_numpy()
    return not bool((np.abs(present) < _FLOAT32_LIMIT).all())


def _numbers(column: pa.Array, log: bool) -> pa.Array:
    """The numbers `[n]` of a dense feature, int64 for a logarithm, else float64; null where they are missing."""
    if pa.types.is_binary(column.type):
        return _cast(column, *((_INTEGER, pa.int64()) if log else (_NUMBER, pa.float64())))
    return column


def _times(column: pa.BinaryArray, written: str) -> pa.Int64Array:
    """Seconds since 1970 `[n]`, int64."""
    if column.null_count:
        raise pa.ArrowInvalid("a time is missing")
    if written in _PER_SECOND:
        integers = column if pa.types.is_integer(column.type) else _cast(column, _INTEGER, pa.int64())
        return pa.array(integers.to_numpy() // _PER_SECOND[written])  # rounds down, before 1970, too
    distinct = column.cast(pa.string()).dictionary_encode()  # mostly, rows with the same time are neighbours
    return _read_times(distinct.dictionary, written).take(distinct.indices)


def _read_times(texts: pa.StringArray, written: str) -> pa.Int64Array:
    """Seconds since 1970 of times `[n]` that are written as a pattern says, int64 `[n]`.

    C's `strptime` accepts more than the pattern: spaces, `March` for `%b`, the year 21 for `%Y`. And it turns the 30th
    of February into the 2nd of March, and a 60th second into the next minute. So each time is written out again. Where
    the result differs from the text by more than capitals, blanks and a zero, or is unknown, Python must read the same
    time. If Python has no such pattern, a result that differs is refused, and one that is unknown is let pass.
    """
    times = pc.strptime(texts, written, "s")
    local, again = _written_out(texts, times, written)
    for number in np.flatnonzero(_differ(local, again)).tolist():
        text, second = texts[number].as_py(), times[number].value
        read = _read_by_python(text, written)
        if read != second and (read is not None or again[number].is_valid):
            raise pa.ArrowInvalid(f"{text}: is another time")
    return times.cast(pa.int64())


def _written_out(texts: pa.StringArray, times: pa.TimestampArray, written: str) -> tuple[pa.StringArray, pa.Array]:
    """Texts `[n]`, and their times written out again `[n]`, null where that is impossible; both without an offset."""
    pattern = _with_forms(written, _WRITTEN_AS)
    conversions = _CONVERSION.findall(pattern)
    ends_with_offset = pattern.endswith("%z") and conversions[-1] == "z"
    if _WITH_ZONES.intersection(conversions[:-1] if ends_with_offset else conversions):
        return texts, pa.nulls(len(texts), pa.string())
    if not ends_with_offset:
        return texts, write_times(times, pattern)
    parts = pc.extract_regex(texts, r"^(?P<local>.*?)(?P<zone>Z|[-+]\d\d:?\d\d)$")
    zones = parts.field("zone").dictionary_encode()
    of_texts = pa.array(map(_offset, zones.dictionary.to_pylist()), pa.duration("s")).take(zones.indices)
    return parts.field("local"), write_times(pc.add(times, of_texts), pattern.removesuffix("%z"))


def _offset(zone: str) -> timedelta | None:
    """An offset from UTC; None for any other text, such as the empty one of a time without an offset."""
    try:
        return datetime.strptime(zone, "%z").utcoffset()
    except ValueError:
        return None


def _differ(texts: pa.StringArray, others: pa.StringArray) -> NDArray[np.bool_]:
    """Whether texts `[n]` differ by more than capitals, more blanks and a zero before a digit, bool `[n]`.

    Nulls always differ.
    """
    differ: NDArray[np.bool_] = pc.not_equal(texts, others).fill_null(True).to_numpy(zero_copy_only=False)
    some = pa.array(differ)
    texts, others = (
        pc.replace_substring_regex(
            pc.replace_substring_regex(pc.ascii_lower(array.filter(some)), r"\s+", " "), _ZERO_BEFORE, r"\1"
        )
        for array in (texts, others)
    )
    differ[differ] = pc.not_equal(texts, others).fill_null(True).to_numpy(zero_copy_only=False)
    return differ


def _read_by_python(text: str, written: str) -> int | None:
    """Seconds since 1970 of a time; None where Python has no such pattern.

    Raises:
        pyarrow.ArrowInvalid: the time is not written as the pattern says.
    """
    if (pattern := _python_pattern(written)) is None:
        return None
    refusal = ""
    for with_zeros in _without_padding(text, written):
        try:
            read = datetime.strptime(with_zeros, pattern)
        except ValueError as error:
            refusal = refusal or str(error)
            continue
        return math.floor((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    raise pa.ArrowInvalid(refusal)


def _without_padding(text: str, written: str) -> Iterator[str]:
    """A time, and then the same with zeros in place of blanks that may be those of numbers that are padded with one."""
    padded = sum(conversion in _PADDED for conversion in _CONVERSION.findall(written))
    places = [found.start() for found in _PADDING.finditer(text)] if padded else []
    for number in range(padded + 1):
        for chosen in combinations(places, number):
            yield "".join("0" if place in chosen else letter for place, letter in enumerate(text))


def _groups(column: pa.Array, values: Values) -> pa.Int64Array:
    """Groups `[n]`, int64: integers, or hashes of texts."""
    if column.null_count:
        raise pa.ArrowInvalid("a group is missing")
    if values is Values.TEXT:
        return pa.array(hash_keys(column).view(np.int64))
    return _values(column, Values.INTEGER)


def _values(column: pa.Array, values: Values) -> pa.Array:
    """Values `[n]` of their type in `source_format.row_schema`."""
    if values is Values.HEX:
        return parse_hex(column)
    if values in (Values.INTEGER, Values.BUCKET) and pa.types.is_binary(column.type):
        column = _cast(column, _INTEGER, pa.int64())
    return bucket_column(column) if values is Values.BUCKET else column


def bucket_column(column: pa.Int64Array) -> pa.UInt32Array:
    """Buckets `[n]` of integers `[n]`, null where the integers are."""
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(buckets(column.fill_null(0).to_numpy()), mask=missing)


def _cast(column: pa.BinaryArray, written: re.Pattern[bytes], kind: pa.DataType) -> pa.Array:
    """The column as numbers of a type; refused unless all match the pattern `written`."""
    good = pc.match_substring_regex(column, f"^({written.pattern.decode()})$")
    if not pc.all(good, min_count=0).as_py():
        raise pa.ArrowInvalid("a number is written in another way")
    return pc.cast(column, kind)


def problem(column: Column, field: bytes) -> str | None:
    """What is wrong with a field, as words to put after it; None where it is good."""
    match column:
        case Label(positive=(), at_least=None):
            return None if field in (b"0", b"1") else " instead of 0 or 1"
        case Label(positive=positive):
            if not field:
                return ", so that its label is missing"
            return None if positive or _NUMBER.fullmatch(field) else ", which is no number"
        case Weight():
            if not field:
                return " instead of a number, 0 or more"
            below = ", which is less than 0" if _NUMBER.fullmatch(field) and float(field) < 0 else None
            return problem(Dense(column.name), field) or below
        case SparseList():
            return _list_problem(column, field) if field else None
        case Sparse(values=Values.HEX) if field and not _HEX.fullmatch(field):
            return f" instead of 1 to {DIGITS} hexadecimal digits"
        case Sparse(values=Values.INTEGER | Values.BUCKET) | Dense(log=True) if field:
            if not _INTEGER.fullmatch(field):
                return ", which is no integer"
            digits = field.lstrip(b"-0")
            if len(digits) > _INT64_DIGITS or int(digits or b"0") >= (1 << 63) + (field[:1] == b"-"):
                return ", which does not fit 64 bits"
        case Dense(log=False) if field:
            if not _NUMBER.fullmatch(field):
                return ", which is no number"
            if not abs(float(field)) < _FLOAT32_LIMIT:
                return ", which is too large for float32"
        case Time(written=written):
            return _time_problem(written, field) if field else " instead of a time"
        case Group(values=values):
            return problem(Sparse(column.name, values), field) if field else " instead of a group"
        case Sparse(values=Values.TEXT):
            try:
                field.decode()
            except UnicodeDecodeError:
                return ", which is no UTF-8 text"
    return None


def _time_problem(written: str, field: bytes) -> str | None:
    if written in _PER_SECOND:
        return problem(Sparse("", Values.INTEGER), field)
    try:
        _read_times(pa.array([field.decode()]), written)
    except ValueError:  # also pyarrow's error
        return f", which is not written as {written!r} says"
    return None


@cache
def _python_pattern(written: str) -> str | None:
    """A pattern of C's strptime for Python's, which lacks the short forms; None where Python has no equivalent."""
    pattern = _with_forms(written, _PYTHON_FORMS)
    try:
        datetime.strptime(_SOME_TIME.strftime(pattern), pattern)
    except ValueError:
        return None
    return pattern


def _with_forms(written: str, forms: Mapping[str, str]) -> str:
    """A pattern with others in place of some conversions, and without modifiers."""
    return _CONVERSION.sub(lambda found: forms.get(found[1], f"%{found[1]}"), written)


def _list_problem(column: SparseList, field: bytes) -> str | None:
    """What is wrong with a field of one value or more, as words to put after it; None where it is good."""
    of_value, of_weight = Sparse(column.name, column.values), Dense(column.name)
    for text in field.split(column.separator.encode()):
        value, weight = text, b"1"
        if column.weights is not None:
            value, between, weight = text.rpartition(column.weights.encode())
            if not between:
                return f", which holds {shown(text)} without {column.weights!r} and a weight"
            if not weight:
                return f", which holds {shown(text)}, whose weight is empty"
        if not value:
            return ", which holds an empty value"
        for part, kind in ((value, of_value), (weight, of_weight)):
            if found := problem(kind, part):
                return f", which holds {shown(part)}{found}"
    return None


def shown(field: bytes) -> str:
    """A field as messages show it: in quotes, and cut if it is long."""
    return repr(field if len(field) <= _SHOWN_CHARACTERS else field[:_SHOWN_CHARACTERS] + b"...").removeprefix("b")
