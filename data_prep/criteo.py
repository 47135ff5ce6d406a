"""The Criteo click format: a label, 13 integers and 26 categorical values, tab-separated, no header.

Good blocks go through pyarrow's CSV parser. A block that it, or a check after it, refuses is read again line by line
to say which line is wrong and why; the lines that are good go through the parser again.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from data_prep.hex_columns import DIGITS, parse_hex

INTEGER_NAMES = tuple(f"I{number}" for number in range(1, 14))
TABLE_NAMES = tuple(f"C{number}" for number in range(1, 27))
NAMES = ("label", *INTEGER_NAMES, *TABLE_NAMES)

ROW_SCHEMA = pa.schema(
    [("label", pa.uint8()), ("dense", pa.list_(pa.float32(), len(INTEGER_NAMES)))]
    + [pa.field(name, pa.uint32()) for name in TABLE_NAMES]
)
"""Parsed rows: 0 or 1; log(1 + max(x, 0)) with 0 for a missing x; the value of the digits, null where it is missing."""

_READ = pa_csv.ReadOptions(column_names=NAMES, use_threads=False, block_size=1 << 20)
_PARSE = pa_csv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False, escape_char=False)
_CONVERT = pa_csv.ConvertOptions(
    column_types={"label": pa.binary()}
    | dict.fromkeys(INTEGER_NAMES, pa.int64())
    | dict.fromkeys(TABLE_NAMES, pa.binary()),
    null_values=[""],
    strings_can_be_null=True,
)
# pyarrow reads " 5" and "0x5" as 5. No good row holds these characters, and looking for them costs next to nothing.
_FORBIDDEN = (b" ", b"x", b"X")
_INTEGER = re.compile(rb"-?[0-9]+")
_HEX = re.compile(rb"[0-9a-fA-F]{1,%d}" % DIGITS)
_INT64_DIGITS = 19
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class BadLine:
    """A line that is no row.

    Attributes:
        index: number of the line in its block, from 0.
        reason: what is wrong with it.
    """

    index: int
    reason: str


def parse_block(text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
    """Read the rows of a block of whole lines. Empty lines are no rows and no errors.

    Args:
        text: lines that end with LF, CRLF or CR.

    Returns:
        The good rows, of `ROW_SCHEMA`, and the bad lines in order.
    """
    try:
        return _parse_rows(text), []
    except pa.ArrowInvalid as error:
        bad = [
            BadLine(index, reason)
            for index, line in enumerate(text.splitlines())
            if line and (reason := _what_is_wrong(line)) is not None
        ]
        if not bad:  # The checks below and pyarrow's disagree: refuse the block with pyarrow's own words.
            return _no_rows(), [BadLine(0, f"in or after this line: {error}")]
    refused = {line.index for line in bad}
    good = [line for index, line in enumerate(text.splitlines()) if index not in refused]
    return _parse_rows(b"\n".join(good)), bad


def _parse_rows(text: bytes) -> pa.RecordBatch:
    """The fast path.

    Raises:
        pyarrow.ArrowInvalid: at least one line is bad.
    """
    if not text.strip(b"\r\n"):
        return _no_rows()
    if any(character in text for character in _FORBIDDEN):
        raise pa.ArrowInvalid("a character that no row holds")
    rows = pa_csv.read_csv(pa.BufferReader(text), _READ, _PARSE, _CONVERT).combine_chunks().to_batches()[0]
    label = _parse_labels(rows.column("label"))
    dense = np.empty((len(rows), len(INTEGER_NAMES)), dtype=np.float32)
    for column, name in enumerate(INTEGER_NAMES):
        dense[:, column] = log_of_count(rows.column(name).fill_null(0).to_numpy())
    return rows_of_columns(label, dense, [parse_hex(rows.column(name)) for name in TABLE_NAMES])


def _parse_labels(column: pa.BinaryArray) -> pa.UInt8Array:
    """Labels of one digit each: pyarrow's own numbers would let 01 pass for 1."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    if column.null_count or (np.diff(offsets) != 1).any():
        raise pa.ArrowInvalid("a label is no single character")
    label = np.frombuffer(column.buffers()[2], np.uint8, len(column), int(offsets[0])) - ord("0")
    if label.max(initial=0) > 1:
        raise pa.ArrowInvalid("a label is neither 0 nor 1")
    return pa.array(label)


def rows_of_columns(label: pa.UInt8Array, dense: NDArray[np.float32], values: list[pa.UInt32Array]) -> pa.RecordBatch:
    """Parsed rows of `ROW_SCHEMA`: labels `[n]`, dense features `[n, 13]`, and the values `[n]` of each table."""
    columns = [label, pa.FixedSizeListArray.from_arrays(pa.array(dense.reshape(-1)), len(INTEGER_NAMES)), *values]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def log_of_count(integers: NDArray[np.int64]) -> NDArray[np.float32]:
    """log(1 + max(x, 0)) of integers `[n]`; in double precision first, as 1 + x may need it."""
    return np.log(np.maximum(integers, 0) + 1.0).astype(np.float32)


def _no_rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA)


def _what_is_wrong(line: bytes) -> str | None:
    """Why a line is no row; None where it is one."""
    fields = line.split(b"\t")
    if len(fields) != len(NAMES):
        return f"{len(fields)} tab-separated fields instead of {len(NAMES)}"
    label, integers, values = fields[0], fields[1 : 1 + len(INTEGER_NAMES)], fields[1 + len(INTEGER_NAMES) :]
    if not re.fullmatch(rb"[01]", label):
        return f"label is {_shown(label)} instead of 0 or 1"
    for name, integer in zip(INTEGER_NAMES, integers, strict=True):
        if integer and not _INTEGER.fullmatch(integer):
            return f"{name} is {_shown(integer)}, which is no integer"
        if integer and (len(integer.lstrip(b"-0")) > _INT64_DIGITS or not -(1 << 63) <= int(integer) < 1 << 63):
            return f"{name} is {_shown(integer)}, which does not fit 64 bits"
    for name, value in zip(TABLE_NAMES, values, strict=True):
        if value and not _HEX.fullmatch(value):
            return f"{name} is {_shown(value)} instead of 1 to {DIGITS} hexadecimal digits"
    return None


def _shown(field: bytes) -> str:
    return repr(field if len(field) <= _SHOWN_CHARACTERS else field[:_SHOWN_CHARACTERS] + b"...").removeprefix("b")
