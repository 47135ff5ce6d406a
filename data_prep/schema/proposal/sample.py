"""The beginning of a file for a proposal: how it is written, and its columns as texts.

Shapes: `n` rows of the sample.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bagpipe_hpc.errors import DataError
from data_prep.formats.columns import Dense
from data_prep.formats.fields import problem
from data_prep.formats.layout import split_quoted
from data_prep.inputs.parquet_blocks import column_types, is_parquet, read_rows
from data_prep.inputs.text_blocks import BYTE_ORDER_MARK, first_bytes
from data_prep.schema.document import FileRules
from data_prep.schema.parquet_fields import has_weights
from data_prep.schema.proposal.parquet_sample import is_list, texts_of

SAMPLE_BYTES = 4 << 20
SAMPLE_ROWS = 20_000
_SEPARATORS = ("\t", ",", ";", "|", " ")
_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", " ": "space"}
_MISSING = ("NA", "N/A", "NaN", "nan", "NULL", "null", "None", "\\N")


@dataclass(frozen=True)
class Sample:
    """The beginning of a file.

    Attributes:
        rules: how it is written.
        names: names of its columns.
        columns: their fields as text, `[n]` each; None where a field is missing.
        lists: names of the columns that hold lists.
        weighted: those of `lists` whose values have weights.
        arrays: for a Parquet file, the columns by their names; empty for text.
    """

    rules: FileRules
    names: tuple[str, ...]
    columns: tuple[Sequence[str | None], ...]
    lists: frozenset[str] = frozenset()
    weighted: frozenset[str] = frozenset()
    arrays: Mapping[str, pa.Array] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether the file is text."""
        return not self.arrays

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0]) if self.columns else 0


def read_sample(source: Path) -> Sample:
    """The beginning of a text, plain or compressed, or of a Parquet file.

    Raises:
        DataError: the file is empty, damaged, or not a table.
    """
    return _parquet_sample(source) if is_parquet(source) else _text_sample(source)


def _text_sample(source: Path) -> Sample:
    """The first rows of a text."""
    start = first_bytes(source, SAMPLE_BYTES).removeprefix(BYTE_ORDER_MARK)
    text = start.decode(errors="replace")
    if "\0" in text[:4096]:
        raise DataError(f"{source}: holds zero bytes, so it is no text; name a CSV, TSV or Parquet file")
    lines = [line for line in re.split(r"\r\n|\n|\r", text) if line]
    if len(start) == SAMPLE_BYTES:
        lines = lines[:-1]  # the last line is cut off
    lines = lines[: SAMPLE_ROWS + 1]
    if len(start) == SAMPLE_BYTES and len(lines) < 2:
        raise DataError(
            f"{source}: has hardly an end of line in its first {SAMPLE_BYTES >> 20} MiB; is it a table of a row a line?"
        )
    if not lines:
        raise DataError(f"{source}: holds no row; name a file with rows")
    separator = max(_SEPARATORS, key=lambda found: _regularity(lines, found))
    if _regularity(lines, separator) <= 0:
        tried = ", ".join(_NAMES.values())
        raise DataError(
            f"{source}: no separator ({tried}) gives nearly all lines as many fields, two or more; is it a table of a "
            "row a line?"
        )
    quoted = any('"' in line for line in lines)
    rows = [split_quoted(line, separator) if quoted else line.split(separator) for line in lines]
    width = Counter(map(len, rows)).most_common(1)[0][0]
    rows = [row for row in rows if len(row) == width]
    if twice := _named_twice(rows):
        raise DataError(f"{source}:1: names the column {twice!r:.80} twice; give each column its own name")
    header = _is_header(rows)
    names = rows[0] if header else [f"c{number}" for number in range(1, width + 1)]
    body = rows[1:] if header else rows
    if not body:
        raise DataError(f"{source}: has a header and no row; name a file with rows")
    missing = tuple(word for word in _MISSING if separator not in word and any(word in row for row in body))
    rules = FileRules(separator=_NAMES[separator], header=header, quoted=quoted or separator == ",", missing=missing)
    absent = {"", *missing}
    columns = tuple(tuple(None if row[at] in absent else row[at] for row in body) for at in range(width))
    return Sample(rules, tuple(names), columns)


def _regularity(lines: Sequence[str], separator: str) -> float:
    """How likely a character is the separator: the fields of a line, if nearly all lines have as many; else 0."""
    counts = Counter(len(split_quoted(line, separator)) for line in lines[:200])
    fields, often = counts.most_common(1)[0]
    return fields if fields > 1 and often >= 0.9 * sum(counts.values()) else 0


def _named_twice(rows: Sequence[Sequence[str]]) -> str | None:
    """A name that comes twice in a first row that would otherwise be a header."""
    counts = Counter(rows[0])
    numbered = [f"{name} {place}" if counts[name] > 1 else name for place, name in enumerate(rows[0])]
    found = next((name for name, count in counts.items() if count > 1 and name), None)
    seen = {field for row in rows[1:1000] for field in row}
    is_header = found not in seen and not is_number(found or "0") and _is_header([numbered, *rows[1:]])
    return found if is_header else None


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: words that differ, at least one above a column of numbers."""
    first, others = rows[0], rows[1:1000]
    if len(set(first)) < len(first) or any(not name or is_number(name) for name in first):
        return False
    if not others:
        return True
    numeric = [all(not row[at] or is_number(row[at]) for row in others) for at in range(len(first))]
    unseen = sum(first[at] not in {row[at] for row in others} for at in range(len(first)))
    return any(numeric) or unseen == len(first)


def _parquet_sample(source: Path) -> Sample:
    types = column_types(source)
    block = next(read_rows(source, 0, tuple(types), 0, SAMPLE_ROWS), None)
    if block is None:
        raise DataError(f"{source}: holds no row; name a file with rows")
    lists = frozenset(name for name, found in types.items() if is_list(found))
    arrays = {name: block.columns.column(name) for name in types}
    columns = tuple(map(texts_of, arrays.values()))
    values = {value for column in columns for value in column}
    missing = tuple(word for word in _MISSING if word in values)
    columns = tuple(tuple(None if value in (*missing, "") else value for value in column) for column in columns)
    weighted = frozenset(name for name in lists if has_weights(types[name]))
    rules = FileRules(missing=missing)
    return Sample(rules, tuple(types), columns, lists=lists, weighted=weighted, arrays=arrays)


def is_number(text: str) -> bool:
    """Whether a field is a decimal number."""
    return problem(Dense(""), text.encode()) is None
