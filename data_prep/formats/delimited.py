"""Reads text of fields with a separator between them by its layout: what every source format does by default.

Good blocks go through pyarrow's CSV parser. A block that it, or a check after it, refuses is read again line by line to
say which line is wrong and why; the lines that are good go through the parser again.

Shapes: `n` rows, `N` dense features.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from data_prep.formats.buckets import buckets
from data_prep.formats.hex_columns import DIGITS, parse_hex
from data_prep.formats.layout import Column, Dense, Label, Sparse, SparseList, TextLayout, Unused, Values, Weight
from data_prep.formats.value_lists import parse_lists

# pyarrow reads " 5" and "0x5" as 5. Few blocks of numbers hold these characters, and looking for them costs next to
# nothing; where one is found, numbers are read as text first.
_SUSPECT = (b" ", b"\t", b"x", b"X")
_INTEGER = re.compile(rb"-?[0-9]+")
_NUMBER = re.compile(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_HEX = re.compile(rb"[0-9a-fA-F]{1,%d}" % DIGITS)
_INT64_DIGITS = 19
_SHOWN_CHARACTERS = 40
_ZERO = b"\0"
_FLOAT32_LIMIT = (2 - 2.0**-24) * 2.0**127
"""From here on a number is rounded to infinity."""


@dataclass(frozen=True)
class BadLine:
    """A line that is no row.

    Attributes:
        index: number of the line in its block, from 0.
        reason: what is wrong with it: field, value, and what it should be. The file and the line are put before it.
    """

    index: int
    reason: str


class DelimitedParser:
    """Reads blocks of text.

    Args:
        layout: what the text looks like.
        schema: of the rows that it gives (`source_format.row_schema`).
    """

    def __init__(self, layout: TextLayout, schema: pa.Schema) -> None:
        self._layout = layout
        self._schema = schema
        self._separator = layout.separator.encode()
        self._suspect = [character for character in _SUSPECT if character != self._separator]
        self._read = pa_csv.ReadOptions(column_names=layout.names, use_threads=False, block_size=1 << 20)
        self._split = pa_csv.ParseOptions(
            delimiter=layout.separator, quote_char='"' if layout.quoted else False, escape_char=False
        )
        used = [column for column in layout.columns if not isinstance(column, Unused)]
        as_numbers, as_text = ({column.name: _arrow_type(column, text) for column in used} for text in (False, True))
        self._as_numbers, self._as_text = (
            pa_csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[""], strings_can_be_null=True
            )
            for types in (as_numbers, as_text)
        )
        field, separator = rb'(?:"(?:[^"]|"")*"|[^"%b]*)', re.escape(self._separator)
        field = field % separator
        self._quoted_line = re.compile(rb"%b(?:%b%b)*" % (field, separator, field))
        self._quoted_field = re.compile(rb"(?:^|(?<=%b))%b(?=%b|\Z)" % (separator, field, separator))

    def parse_block(self, text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
        """As `SourceFormat.parse_block`."""
        try:
            return self._parse_rows(text), []
        except pa.ArrowInvalid:
            lines = text.splitlines()
            bad = {index: reason for index, line in enumerate(lines) if line and (reason := self._what_is_wrong(line))}
        try:
            rows = self._parse_rows(_without(lines, bad))
        except pa.ArrowInvalid:  # The checks and pyarrow disagree: it has the last word on each line.
            bad |= {
                index: reason
                for index, line in enumerate(lines)
                if index not in bad and (reason := self._refused(line))
            }
            rows = self._parse_rows(_without(lines, bad))
        return rows, [BadLine(index, bad[index]) for index in sorted(bad)]

    def _parse_rows(self, text: bytes) -> pa.RecordBatch:
        """The fast path.

        Raises:
            pyarrow.ArrowInvalid: at least one line is bad.
        """
        if not text.strip(b"\r\n"):
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self._schema], schema=self._schema)
        if _ZERO in text:
            raise pa.ArrowInvalid("a zero byte")
        if self._layout.quoted and b'"' in text:
            self._check_quotes(text)
        suspect = any(character in text for character in self._suspect)
        convert = self._as_text if suspect else self._as_numbers
        rows = pa_csv.read_csv(pa.BufferReader(text), self._read, self._split, convert).combine_chunks().to_batches()[0]
        columns = [_all_labels([rows.column(label) for label in self._layout.labels])]
        if self._layout.weight is not None:
            columns.append(_sample_weights(rows.column(self._layout.weight)))
        if self._layout.dense:
            dense = np.empty((len(rows), len(self._layout.dense)), dtype=np.float32)
            for number, column in enumerate(self._layout.dense):
                dense[:, number] = _dense(rows.column(column.name), column.log)
            if not np.isfinite(dense).all():
                raise pa.ArrowInvalid("a dense feature is no finite number")
            columns.append(dense_column(dense))
        columns += [
            _feature(rows.column(column.name), column, self._schema.field(column.name).type)
            for column in self._layout.features
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _check_quotes(self, text: bytes) -> None:
        """Refuse what pyarrow lets pass: quotes inside of a field, and fields that go on in the next line."""
        for line in text.splitlines():
            if b'"' in line and not self._quoted_line.fullmatch(line):
                raise pa.ArrowInvalid("quotes that do not enclose a field")

    def _refused(self, line: bytes) -> str | None:
        """Why pyarrow refuses a line; None where it does not."""
        try:
            self._parse_rows(line)
        except pa.ArrowInvalid as error:
            return f"it cannot be read: {error}"
        return None

    def _what_is_wrong(self, line: bytes) -> str | None:
        """Why a line is no row; None where it is one."""
        layout = self._layout
        fields = self._fields(line)
        if fields is None:
            return 'a quote stands inside a field, or is not closed; fields with quotes are written "a ""word"""'
        if len(fields) != len(layout.columns):
            return f"{len(fields)} {layout.separator_name}-separated fields instead of {len(layout.columns)}"
        for column, field in zip(layout.columns, fields, strict=True):
            problem = _problem(column, field)
            if problem is not None:
                return f"{column.name} is {_shown(field)}{problem}"
        return "it holds a zero byte" if _ZERO in line else None

    def _fields(self, line: bytes) -> list[bytes] | None:
        """The fields of a line, out of their quotes; None where the quotes are wrong."""
        if not self._layout.quoted or b'"' not in line:
            return line.split(self._separator)
        if not self._quoted_line.fullmatch(line):
            return None
        fields = self._quoted_field.findall(line)
        return [field[1:-1].replace(b'""', b'"') if field.startswith(b'"') else field for field in fields]


def log_of_count(integers: NDArray[np.int64]) -> NDArray[np.float32]:
    """log(1 + max(x, 0)) of integers `[n]`; in double precision first, as 1 + x may need it."""
    return np.log(np.maximum(integers, 0) + 1.0).astype(np.float32)


def dense_column(dense: NDArray[np.float32]) -> pa.FixedSizeListArray:
    """Dense features `[n, N]`, N above 0, as a column of parsed rows."""
    return pa.FixedSizeListArray.from_arrays(pa.array(dense.reshape(-1)), dense.shape[1])


def _arrow_type(column: Column, as_text: bool) -> pa.DataType:
    """As what pyarrow is to read a column; numbers as text where the block holds suspect characters."""
    match column:
        case Sparse(values=Values.TEXT) | SparseList(values=Values.TEXT):
            return pa.string()
        case Sparse(values=Values.INTEGER | Values.BUCKET) | Dense(log=True) if not as_text:
            return pa.int64()
        case Dense() | Weight() if not as_text:
            return pa.float64()
    return pa.binary()


def _labels(column: pa.BinaryArray) -> pa.UInt8Array:
    """Labels of one digit each: pyarrow's own numbers would let 01 pass for 1."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    if column.null_count or (np.diff(offsets) != 1).any():
        raise pa.ArrowInvalid("a label is no single character")
    label = np.frombuffer(column.buffers()[2], np.uint8, len(column), int(offsets[0])) - ord("0")
    if label.max(initial=0) > 1:
        raise pa.ArrowInvalid("a label is neither 0 nor 1")
    return pa.array(label)


def _all_labels(columns: list[pa.BinaryArray]) -> pa.Array:
    """The labels, uint8: `[n]` of one column, else a list of K for each row."""
    labels = [_labels(column) for column in columns]
    if len(labels) == 1:
        return labels[0]
    side_by_side = np.stack([label.to_numpy() for label in labels], axis=1)
    return pa.FixedSizeListArray.from_arrays(pa.array(side_by_side.reshape(-1)), len(labels))


def _sample_weights(column: pa.Array) -> pa.FloatArray:
    """Weights of samples `[n]`, float32, finite and 0 or more."""
    weights = _dense(column, log=False)
    if column.null_count or not np.isfinite(weights).all() or (_numbers(column, log=False) < 0).any():
        raise pa.ArrowInvalid("a weight is missing, negative or too large")
    return pa.array(weights)


def _id_weights(texts: pa.Array) -> pa.FloatArray:
    """Weights of ids `[V]`, float32 and finite."""
    weights = _dense(texts.cast(pa.binary()), log=False)
    if not np.isfinite(weights).all():
        raise pa.ArrowInvalid("a weight is too large")
    return pa.array(weights)


def _dense(column: pa.Array, log: bool) -> NDArray[np.float32]:
    """A dense feature `[n]`; not finite where the number is not, or is too large."""
    numbers = _numbers(column, log)
    if log:
        return log_of_count(numbers)
    with np.errstate(over="ignore"):
        feature: NDArray[np.float32] = numbers.astype(np.float32)
    return feature


def _numbers(column: pa.Array, log: bool) -> NDArray[Any]:
    """The numbers `[n]` of a dense feature, int64 for a logarithm, else float64; 0 where they are missing."""
    if pa.types.is_binary(column.type):
        column = _cast(column, *((_INTEGER, pa.int64()) if log else (_NUMBER, pa.float64())))
    numbers: NDArray[Any] = column.fill_null(0).to_numpy()
    return numbers


def _feature(column: pa.Array, kind: Sparse | SparseList, to: pa.DataType) -> pa.Array:
    """The values `[n]`, or lists of them, of a feature, of a type of `source_format.row_schema`."""
    if isinstance(kind, Sparse):
        return _values(column, kind.values)
    return parse_lists(column, kind, to, lambda texts: _values(texts, kind.values), _id_weights)


def _values(column: pa.Array, values: Values) -> pa.Array:
    """Values `[n]` of their type in `source_format.row_schema`."""
    if values is Values.HEX:
        return parse_hex(column)
    if values in (Values.INTEGER, Values.BUCKET) and pa.types.is_binary(column.type):
        column = _cast(column, _INTEGER, pa.int64())
    return _buckets(column) if values is Values.BUCKET else column


def _buckets(column: pa.Int64Array) -> pa.UInt32Array:
    """Buckets `[n]` of integers `[n]`, null where these are."""
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(buckets(column.fill_null(0).to_numpy()), mask=missing)


def _cast(column: pa.BinaryArray, written: re.Pattern[bytes], kind: pa.DataType) -> pa.Array:
    """Numbers of a kind, where all of a column are written as they should be."""
    good = pc.match_substring_regex(column, f"^({written.pattern.decode()})$")
    if not pc.all(good, min_count=0).as_py():
        raise pa.ArrowInvalid("a number is written in another way")
    return pc.cast(column, kind)


def _without(lines: list[bytes], bad: Container[int]) -> bytes:
    """The lines that are good, as a block."""
    return b"\n".join([line for index, line in enumerate(lines) if index not in bad])


def _problem(column: Column, field: bytes) -> str | None:
    """What is wrong with a field, to be put behind it; None where it is good."""
    match column:
        case Label():
            return None if field in (b"0", b"1") else " instead of 0 or 1"
        case Weight():
            if not field:
                return " instead of a number, 0 or more"
            below = ", which is less than 0" if _NUMBER.fullmatch(field) and float(field) < 0 else None
            return _problem(Dense(column.name), field) or below
        case SparseList():
            return _list_problem(column, field) if field else None
        case Sparse(values=Values.HEX) if field and not _HEX.fullmatch(field):
            return f" instead of 1 to {DIGITS} hexadecimal digits"
        case Sparse(values=Values.INTEGER | Values.BUCKET) | Dense(log=True) if field:
            if not _INTEGER.fullmatch(field):
                return ", which is no integer"
            if len(field.lstrip(b"-0")) > _INT64_DIGITS or not -(1 << 63) <= int(field) < 1 << 63:
                return ", which does not fit 64 bits"
        case Dense(log=False) if field:
            if not _NUMBER.fullmatch(field):
                return ", which is no number"
            if not abs(float(field)) < _FLOAT32_LIMIT:
                return ", which is too large for float32"
        case Sparse(values=Values.TEXT):
            try:
                field.decode()
            except UnicodeDecodeError:
                return ", which is no UTF-8 text"
    return None


def _list_problem(column: SparseList, field: bytes) -> str | None:
    """What is wrong with a field of one value or more, to be put behind it; None where it is good."""
    of_value, of_weight = Sparse(column.name, column.values), Dense(column.name)
    for text in field.split(column.separator.encode()):
        value, weight = text, b"1"
        if column.weights is not None:
            value, between, weight = text.rpartition(column.weights.encode())
            if not between:
                return f", which holds {_shown(text)} without {column.weights!r} and a weight"
            if not weight:
                return f", which holds {_shown(text)}, whose weight is empty"
        if not value:
            return ", which holds an empty value"
        for part, kind in ((value, of_value), (weight, of_weight)):
            if problem := _problem(kind, part):
                return f", which holds {_shown(part)}{problem}"
    return None


def _shown(field: bytes) -> str:
    return repr(field if len(field) <= _SHOWN_CHARACTERS else field[:_SHOWN_CHARACTERS] + b"...").removeprefix("b")
