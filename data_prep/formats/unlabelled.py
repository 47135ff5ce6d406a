"""Rows to score: their labels may be absent from the text, and do not count where they are there.

The text is given labels of 0 before its source format reads it, so that any format of text, its own readers included,
can be used.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from bagpipe_hpc.errors import DataError
from data_prep.formats.delimited import BadLine
from data_prep.formats.layout import Label, TextFields
from data_prep.input_files import check_header, first_row

_Parse = Callable[[bytes], tuple[pa.RecordBatch, list[BadLine]]]


def unlabelled_parser(parse_block: _Parse, source: Path, fields: TextFields) -> _Parse:
    """Reads the rows to score of a file, all labels 0, by what reads rows with labels.

    Args:
        parse_block: reads rows with labels.
        source: the file, with or without the columns of labels.
        fields: of rows with labels.

    Raises:
        DataError: the file has other columns than its format, with or without the labels.
    """
    absent = _lacks_labels(source, fields)
    give_labels = _Labels(fields, absent)

    def parse(text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
        batch, bad = parse_block(give_labels(text))
        if absent:
            bad = [replace(line, reason=f"{line.reason} (with labels, which these rows lack)") for line in bad]
        return without_labels(batch, bad)

    return parse


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


def _lacks_labels(source: Path, fields: TextFields) -> bool:
    """Whether the columns of labels are absent from a file."""
    found = fields.split(first_row(source))
    without = [column.name for column in fields.columns if not isinstance(column, Label)]
    if fields.header:
        if found == without:
            return True
        check_header(source, fields)
        return False
    if len(found) in (len(fields.names), len(without)):
        return len(found) == len(without)
    raise DataError(
        f"{source}: the first row has {len(found)} {fields.separator_name}-separated fields; rows to score have "
        f"{len(without)}, or {len(fields.names)} with the labels, which do not count"
    )


class _Labels:
    """Gives the lines of a block labels of 0.

    Args:
        fields: of lines with labels.
        absent: whether the fields of labels are absent; otherwise they are replaced, whatever they hold.
    """

    def __init__(self, fields: TextFields, absent: bool) -> None:
        separator = fields.separator.encode()
        between = re.escape(separator)
        field = rb"[^%b\n]*" % between
        if fields.quoted:
            field = rb'(?:"(?:[^"\n]|"")*"|%b)' % field
        self._steps: list[tuple[re.Pattern[bytes], bytes]] = []
        for place in (place for place, column in enumerate(fields.columns) if isinstance(column, Label)):
            before = rb"(?:%b%b){%d}%b" % (field, between, place - 1, field) if place else b""
            old = b"" if absent else (between + field if place else field)
            new = separator + b"0" if place else b"0" + (separator if absent else b"")
            self._steps.append((re.compile(rb"(?m)^(?=.)(%b)%b" % (before, old)), rb"\g<1>" + new))

    def __call__(self, text: bytes) -> bytes:
        """The block with labels; lines keep their numbers."""
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        for pattern, new in self._steps:
            text = pattern.sub(new, text)
        return text
