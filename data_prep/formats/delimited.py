"""Reads delimited text by its layout, as every source format does by default.

Good blocks go through pyarrow's CSV parser. A block that it, or a check after it, refuses is read again line by line to
say which line is wrong and why; the good lines then go through the parser again.

Shapes: `n` rows, `N` dense features.
"""

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from bagpipe_hpc.storage.shards.entries import GROUP, TIMESTAMP
from data_prep.formats.columns import Group, Time, Unused
from data_prep.formats.fields import bucket_column, problem, read_fields, shown, text_type
from data_prep.formats.layout import RowLayout, TextFields
from data_prep.formats.native_delimited import NativeFields
from data_prep.inputs.text_blocks import BLOCK_BYTES

RowsOf = Callable[[Mapping[str, pa.Array]], pa.RecordBatch]
"""Makes parsed rows of the fields of each used column, as `fields.read_fields` gives them.

Raises:
    pyarrow.ArrowInvalid: a row is bad.
"""

# pyarrow reads " 5" and "0x5" as 5. Few blocks of numbers hold these characters, and searching for them costs next to
# nothing; if one is found, numbers are read as text first.
_SUSPECT = (b" ", b"\t", b"x", b"X")
_ZERO = b"\0"
_LONGEST_LINE = 2 * BLOCK_BYTES
"""Bytes of the longest line that `read_blocks` gives; pyarrow refuses lines that are longer than its own blocks."""


@dataclass(frozen=True)
class BadLine:
    """A line that is not a row.

    Attributes:
        index: number of the line in its block, from 0.
        reason: what is wrong with it: field, value, and what it should be. Messages put the file and the line before.
    """

    index: int
    reason: str


class DelimitedParser:
    """Reads blocks of text.

    Args:
        layout: what the text looks like.
        schema: schema of the rows that it gives (`source_format.row_schema`).
        rows_of: makes these rows of the fields of a block; where it refuses a block, it must refuse some of its lines
            alone, too.
        native: read blocks that hold nothing unusual with native code.
    """

    def __init__(self, layout: TextFields, schema: pa.Schema, rows_of: RowsOf, *, native: bool = False) -> None:
        self._layout = layout
        self._native = NativeFields(layout) if native else None
        self._schema = schema
        self._rows_of = rows_of
        self._missing = {text.encode() for text in layout.missing}
        self._separator = layout.separator.encode()
        self._suspect = [character for character in _SUSPECT if character != self._separator]
        self._read = pa_csv.ReadOptions(column_names=layout.names, use_threads=False, block_size=_LONGEST_LINE)
        self._split = pa_csv.ParseOptions(
            delimiter=layout.separator, quote_char='"' if layout.quoted else False, escape_char=False
        )
        self._used = [column for column in layout.columns if not isinstance(column, Unused)]
        as_numbers, as_text = (
            {column.name: text_type(column, text) for column in self._used} for text in (False, True)
        )
        self._as_numbers, self._as_text = (
            pa_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=["", *layout.missing],
                strings_can_be_null=True,
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
        except pa.ArrowInvalid:  # The checks and pyarrow disagree: pyarrow decides about each line.
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
        if text[:1] in (b"", b"\r", b"\n") and not text.strip(b"\r\n"):  # strip copies the block, so it comes last
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self._schema], schema=self._schema)
        fields = self._native.read(text) if self._native else None
        return self._rows_of(self._read_fields(text) if fields is None else fields)

    def _read_fields(self, text: bytes) -> dict[str, pa.Array]:
        """The fields of each used column: the definition."""
        if _ZERO in text:
            raise pa.ArrowInvalid("a zero byte")
        if self._layout.quoted and b'"' in text:
            self._check_quotes(text)
        suspect = any(character in text for character in self._suspect)
        convert = self._as_text if suspect else self._as_numbers
        rows = pa_csv.read_csv(pa.BufferReader(text), self._read, self._split, convert).combine_chunks().to_batches()[0]
        return {kind.name: read_fields(rows.column(kind.name), kind) for kind in self._used}

    def _check_quotes(self, text: bytes) -> None:
        """Refuse what pyarrow lets pass: quotes inside a field, and fields that continue in the next line."""
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
        """Why a line is not a row; None where it is one."""
        layout = self._layout
        fields = self._fields(line)
        if fields is None:
            return 'a quote stands inside a field, or is not closed; fields with quotes are written "a ""word"""'
        if len(fields) != len(layout.columns):
            return f"{len(fields)} {layout.separator_name}-separated fields instead of {len(layout.columns)}"
        for column, field in zip(layout.columns, fields, strict=True):
            found = problem(column, b"" if field in self._missing else field)
            if found is not None:
                return f"{column.name} is {shown(field)}{found}"
        return "it holds a zero byte" if _ZERO in line else None

    def _fields(self, line: bytes) -> list[bytes] | None:
        """The fields of a line, without their quotes; None where the quotes are wrong."""
        if not self._layout.quoted or b'"' not in line:
            return line.split(self._separator)
        if not self._quoted_line.fullmatch(line):
            return None
        fields = self._quoted_field.findall(line)
        return [field[1:-1].replace(b'""', b'"') if field.startswith(b'"') else field for field in fields]


def layout_rows(layout: RowLayout, schema: pa.Schema) -> RowsOf:
    """A function that makes rows of fields that hold what the rows hold: those of a `TextLayout`."""

    def rows_of(fields: Mapping[str, pa.Array]) -> pa.RecordBatch:
        columns = [label_column([fields[label] for label in layout.labels])]
        if layout.weight is not None:
            columns.append(fields[layout.weight])
        if layout.dense:
            dense = np.empty((len(columns[0]), len(layout.dense)), dtype=np.float32)
            for number, column in enumerate(layout.dense):
                numbers = fields[column.name].fill_null(0).to_numpy()
                dense[:, number] = log_of_count(numbers) if column.log else numbers
            columns.append(dense_column(dense))
        bucketed = {column.name for column in layout.dense if column.bucketed}
        columns += [
            bucket_column(fields[column.name]) if column.name in bucketed else fields[column.name]
            for column in layout.features
        ]
        columns += other_columns(layout, fields)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return rows_of


def other_columns(layout: RowLayout, fields: Mapping[str, pa.Array]) -> list[pa.Int64Array]:
    """The columns `layout.others` of parsed rows."""
    kinds = {TIMESTAMP: Time, GROUP: Group}
    return [
        fields[column.name] for name in layout.others for column in layout.columns if isinstance(column, kinds[name])
    ]


def log_of_count(integers: NDArray[np.int64]) -> NDArray[np.float32]:
    """log(1 + max(x, 0)) of integers `[n]`, float32 `[n]`; computed in float64 first, as 1 + x may need it."""
    return np.log(np.maximum(integers, 0) + 1.0).astype(np.float32)


def dense_column(dense: NDArray[np.float32]) -> pa.FixedSizeListArray:
    """Dense features `[n, N]`, N above 0, as a column of parsed rows."""
    return pa.FixedSizeListArray.from_arrays(pa.array(dense.reshape(-1)), dense.shape[1])


def label_column(labels: list[pa.UInt8Array]) -> pa.Array:
    """The labels as a column of parsed rows: `[n]` of one column, else a list of K for each row."""
    if len(labels) == 1:
        return labels[0]
    side_by_side = np.stack([label.to_numpy() for label in labels], axis=1)
    return pa.FixedSizeListArray.from_arrays(pa.array(side_by_side.reshape(-1)), len(labels))


def _without(lines: list[bytes], bad: Container[int]) -> bytes:
    """The good lines, as a block."""
    return b"\n".join([line for index, line in enumerate(lines) if index not in bad])
