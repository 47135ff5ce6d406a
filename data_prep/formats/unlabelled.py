"""Rows to score: columns that no prediction needs may be absent from the text, and are ignored if they are there.

These are labels, weights of samples, times and groups (`UNNEEDED`). Such fields are filled in before the source format
reads the text, so that any format of text can be used, even with readers of its own.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from bagpipe_hpc.errors import DataError
from data_prep.formats.columns import Column, Group, Label, Time, Weight
from data_prep.formats.delimited import BadLine
from data_prep.formats.layout import TextFields
from data_prep.inputs.files import check_header, first_line, first_row

_Parse = Callable[[bytes], tuple[pa.RecordBatch, list[BadLine]]]

UNNEEDED = (Label, Weight, Time, Group)
"""Kinds of columns that no prediction needs."""


def unlabelled_parser(parse_block: _Parse, source: Path, fields: TextFields) -> _Parse:
    """A parser of a file's rows to score, made from a parser of rows with labels: labels are 0 and weights 1.

    Args:
        parse_block: reads rows with all columns.
        source: the file, with or without the columns of `UNNEEDED`.
        fields: the fields of rows with all columns.

    Raises:
        DataError: the file has other columns than its format, with or without those of `UNNEEDED`.
    """
    absent = _absent(source, fields)
    fill = _Fill(fields, absent)
    lacking = ", ".join(name for name in fields.names if name in absent)

    def parse(text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
        batch, bad = parse_block(fill(text))
        if absent:
            bad = [replace(line, reason=f"{line.reason} (with {lacking}, which these rows lack)") for line in bad]
        return without_labels(batch, bad)

    return parse


def absent_by_count(
    source: Path, columns: Sequence[Column], unneeded: Collection[str], first: Sequence[str]
) -> frozenset[str]:
    """Which columns rows without a header lack, by the number of their fields: none, the labels, or all of `unneeded`.

    Args:
        source: the file.
        columns: the columns of complete rows.
        unneeded: names of those that may be absent, including the labels.
        first: fields of the file's first row; a file without rows lacks nothing.

    Raises:
        DataError: rows have another number of fields.
    """
    if list(first) in ([], [""]):
        return frozenset()
    labels = [column.name for column in columns if isinstance(column, Label)]
    cases = {len(columns): (), len(columns) - len(unneeded): unneeded, len(columns) - len(labels): labels}
    if len(first) in cases:
        return frozenset(cases[len(first)])
    told = [str(len(columns)), *(f"{fields} without {', '.join(names)}" for fields, names in cases.items() if names)]
    raise DataError(f"{source}: the first row has {len(first)} fields; rows to score have {', or '.join(told)}")


def without_labels(batch: pa.RecordBatch, bad: list[BadLine]) -> tuple[pa.RecordBatch, list[BadLine]]:
    """Parsed rows whose labels are all 0, and the bad lines as they are."""
    place = batch.schema.get_field_index("label")
    kind = batch.schema.field(place).type
    if pa.types.is_fixed_size_list(kind):
        zeros = pa.array(np.zeros(len(batch) * kind.list_size, np.uint8))
        labels = pa.FixedSizeListArray.from_arrays(zeros, kind.list_size)
    else:
        labels = pa.array(np.zeros(len(batch), np.uint8))
    columns = [labels if number == place else column for number, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema), bad


def _absent(source: Path, fields: TextFields) -> frozenset[str]:
    """Names of the columns that a file lacks."""
    unneeded = [column.name for column in fields.columns if isinstance(column, UNNEEDED)]
    if not fields.header:
        return absent_by_count(source, fields.columns, unneeded, fields.split(first_row(source)))
    found = fields.split(first_line(source))
    absent = frozenset(unneeded).difference(found)
    if found != [name for name in fields.names if name not in absent]:
        check_header(source, fields)
    return absent


class _Fill:
    """Fills in the fields that no prediction needs in the lines of a block.

    Args:
        fields: the fields of lines with all columns.
        absent: names of the columns that these lines lack; fields of other `UNNEEDED` columns are replaced, whatever
            they hold.
    """

    def __init__(self, fields: TextFields, absent: Collection[str]) -> None:
        separator = fields.separator.encode()
        between = re.escape(separator)
        field = rb"[^%b\n]*" % between
        if fields.quoted:
            field = rb'(?:"(?:[^"\n]|"")*"|%b)' % field
        self._steps: list[tuple[re.Pattern[bytes], bytes]] = []
        for place, column in enumerate(fields.columns):
            if not isinstance(column, UNNEEDED):
                continue
            is_absent, filling = column.name in absent, _filling(column, fields.quoted)
            before = rb"(?:%b%b){%d}%b" % (field, between, place - 1, field) if place else b""
            old = b"" if is_absent else (between + field if place else field)
            new = separator + filling if place else filling + (separator if is_absent else b"")
            self._steps.append(
                (re.compile(rb"(?m)^(?=.)(%b)%b" % (before, old)), rb"\g<1>" + new.replace(b"\\", rb"\\"))
            )

    def __call__(self, text: bytes) -> bytes:
        """The block with all fields; lines keep their numbers."""
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        for pattern, new in self._steps:
            text = pattern.sub(new, text)
        return text


def _filling(column: Label | Weight | Time | Group, quoted: bool) -> bytes:
    """A valid field of a column."""
    match column:
        case Weight():
            return b"1"
        case Time(written=written) if "%" in written:
            text = datetime.fromtimestamp(0, UTC).strftime(written).encode()
            return b'"%b"' % text.replace(b'"', b'""') if quoted else text
        case _:
            return b"0"
