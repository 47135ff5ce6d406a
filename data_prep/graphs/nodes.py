"""The nodes that are samples: reads a CSV of node numbers, labels and dense features.

Legend: `n` samples, `N` dense features, `K` labels.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.plan.bags import Int64s
from data_prep.formats.columns import Dense, Sparse, Values
from data_prep.formats.fields import problem, shown
from data_prep.inputs.text_blocks import TextPosition, count_line_ends, read_blocks, split_first_line

NODE = "node"
"""Name of the column of node numbers, of the feature and of the table."""
MOST_CLASSES = 1000
_LINE = re.compile(rb"[^\r\n]+")
"""A line of the table: pyarrow leaves out empty ones."""
_HEXADECIMAL = re.compile(rb'[\r\n,][ \t"]*(-?0[xX][^\r\n,]*)')
"""A field that pyarrow reads as a whole number."""


class Nodes(NamedTuple):
    """The nodes that are samples, in the order of the file.

    Attributes:
        numbers: distinct node numbers, int64 `[n]`.
        dense: dense features, float32 `[n, N]`.
        labels: labels 0 or 1, uint8 `[n, K]`.
        label_names: names of the labels.
    """

    numbers: Int64s
    dense: NDArray[np.float32]
    labels: NDArray[np.uint8]
    label_names: tuple[str, ...]


def read_nodes(file: Path, label_columns: Sequence[str]) -> Nodes:
    """Read a CSV file with a header: `node`, columns of labels, and any other columns, which are dense features.

    A column of labels holds 0 and 1, or class numbers from 0 to C - 1, which become a label for each class.

    Args:
        file: the file, which may be compressed with gzip, bzip2, xz or zstd.
        label_columns: names of the columns of labels, at least one.

    Raises:
        DataError: a column is missing or comes twice, a field is empty or malformed, or a node comes twice.
        ConfigError: the column of node numbers is named as a label.
    """
    read = _read(file)
    table = read.columns
    for name in (NODE, *label_columns):
        if table.column_names.count(name) != 1:
            raise DataError(f"{file}: has no column {name!r}, or two; it has {', '.join(table.column_names)}")
    if table.num_rows == 0:
        raise DataError(f"{file}: has no node; name the nodes to train on, a line each")
    if twice := next((name for name, count in Counter(table.column_names).items() if count > 1), None):
        raise DataError(f"{file}: column {twice!r} is there twice; name each column once")
    if NODE in label_columns:
        raise ConfigError(f"--label {NODE}: has the nodes' numbers; name a column of labels")
    numbers = _whole_numbers(read, NODE)
    first = np.unique(numbers, return_index=True)[1]
    if len(first) < len(numbers):
        twice = np.setdiff1d(np.arange(len(numbers)), first)[0]
        raise DataError(f"{read.place(twice)}: node {numbers[twice]} comes again; name each node once")
    labels = [_labels(read, name) for name in label_columns]
    others = [name for name in table.column_names if name not in (NODE, *label_columns)]
    dense = [_dense(read, name) for name in others]
    return Nodes(
        numbers,
        np.stack(dense, axis=1) if dense else np.empty((len(numbers), 0), np.float32),
        np.concatenate([columns for columns, _ in labels], axis=1),
        tuple(name for _, names in labels for name in names),
    )


def _read(file: Path) -> "_NodeFile":
    """The columns of a file."""
    text = b"".join(block.text for block in read_blocks(file, TextPosition()))
    header = split_first_line(text)[0]
    if found := _HEXADECIMAL.search(text, len(header)):
        line = count_line_ends(text[: found.start(1)]) + 1
        raise DataError(f"{file}:{line}: {shown(found[1])} is no decimal number; write 16 for 0x10")
    if not text.strip():
        raise DataError(f"{file}: holds empty lines alone; write a CSV file with a header")
    try:
        table = pa_csv.read_csv(pa.BufferReader(text))
        return _NodeFile(file, text, table.rename_columns(table.column_names))  # decodes the names, which may raise
    except pa.ArrowInvalid as error:
        _refuse_line(file, text)
        raise DataError(f"{file}: {str(error).partition(chr(10))[0]}; write a CSV file with a header") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: the name of a column is {shown(error.object)}, which is no UTF-8 text; convert the file, as with "
            "iconv -t UTF-8, or rename the column"
        ) from None


@dataclass(frozen=True)
class _NodeFile:
    """A file of nodes.

    Attributes:
        file: the file.
        text: what it holds.
        columns: its columns, as pyarrow reads them.
    """

    file: Path
    text: bytes
    columns: pa.Table

    def place(self, row: int) -> str:
        """File and line of a row."""
        return _place(self.file, self.text, row + 1)

    def fields(self, name: str) -> pa.BinaryArray:
        """The fields of a column as they are written, without blanks around them."""
        convert = pa_csv.ConvertOptions(include_columns=[name], column_types={name: pa.binary()})
        texts = pa_csv.read_csv(pa.BufferReader(self.text), convert_options=convert)[name].combine_chunks()
        return pc.ascii_trim_whitespace(texts.cast(pa.string(), safe=False)).cast(pa.binary())


def _place(file: Path, text: bytes, number: int) -> str:
    """File and line of a row; the header is row 0."""
    line = next(islice(_LINE.finditer(text), number, None))
    return f"{file}:{count_line_ends(text[: line.start()]) + 1}"


def _refuse_line(file: Path, text: bytes) -> None:
    """Refuse the first line that has more or fewer fields than the header, if there is one."""
    wrong: list[pa_csv.InvalidRow] = []

    def note(row: pa_csv.InvalidRow) -> str:
        wrong.append(row)
        return "error"

    reading, parsing = pa_csv.ReadOptions(use_threads=False), pa_csv.ParseOptions(invalid_row_handler=note)
    with suppress(pa.ArrowInvalid):
        pa_csv.read_csv(pa.BufferReader(text), reading, parsing)
    if wrong:
        row = wrong[0]
        told = f"{row.actual_columns} comma-separated fields instead of {row.expected_columns}"
        raise DataError(f"{_place(file, text, row.number - 1)}: {told}; write as many as the header has")


def _refuse_field(read: _NodeFile, name: str, kind: Sparse | Dense, cure: str) -> NoReturn:
    """Refuse the first field of a column that is not what `kind` says; there is one."""
    fields = read.fields(name)
    row = _first_bad(fields, kind)
    field = fields[row].as_py()
    what = "number" if isinstance(kind, Dense) else "whole number"
    why = f"{problem(kind, field) or f', which is no {what}'}" if field else f" instead of a {what}"
    raise DataError(f"{read.place(row)}: {name} is {shown(field)}{why}; {cure}")


def _first_bad(fields: pa.BinaryArray, kind: Sparse | Dense) -> int:
    """The row of the first field that pyarrow does not read as a number, or not as one that float32 holds."""

    def is_good(count: int) -> bool:
        try:
            numbers = fields[first:count].cast(pa.float64() if isinstance(kind, Dense) else pa.int64())
        except pa.ArrowInvalid:
            return False
        with np.errstate(over="ignore"):
            return bool(np.isfinite(numbers.to_numpy().astype(np.float32)).all())

    first, end = 0, len(fields)  # the rows before `first` are good, and one before `end` is bad
    while end - first > 1:
        middle = (first + end) // 2
        if is_good(middle):
            first = middle
        else:
            end = middle
    return first


def _whole_numbers(read: _NodeFile, name: str) -> Int64s:
    """A column of whole numbers, 0 or more."""
    column = read.columns.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        _refuse_field(read, name, Sparse(name, Values.INTEGER), "write a whole number, 0 or more, in each row")
    numbers: Int64s = column.to_numpy().astype(np.int64)
    if numbers.min() < 0:
        row = int(np.flatnonzero(numbers < 0)[0])
        raise DataError(f"{read.place(row)}: {name} is {numbers[row]}; use 0 or more")
    return numbers


def _labels(read: _NodeFile, name: str) -> tuple[NDArray[np.uint8], list[str]]:
    """The labels of a column, uint8 `[n, labels]`, and their names."""
    classes = _whole_numbers(read, name)
    if (most := int(classes.max())) >= MOST_CLASSES:
        row = int(np.flatnonzero(classes >= MOST_CLASSES)[0])
        cure = f"number classes from 0, {MOST_CLASSES} at most"
        raise DataError(f"{read.place(row)}: {name} is class {classes[row]}; {cure}")
    if most <= 1:
        return classes.astype(np.uint8).reshape(-1, 1), [name]
    return (classes[:, None] == np.arange(most + 1)).astype(np.uint8), [f"{name}_{one}" for one in range(most + 1)]


def _dense(read: _NodeFile, name: str) -> NDArray[np.float32]:
    """A column of numbers."""
    column = read.columns.column(name)
    cure = f"all columns but {NODE!r} and those of --label are dense features, which are numbers of float32"
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if not is_number or column.null_count:
        _refuse_field(read, name, Dense(name), cure)
    with np.errstate(over="ignore"):
        numbers: NDArray[np.float32] = pc.cast(column, pa.float64(), safe=False).to_numpy().astype(np.float32)
    if not np.isfinite(numbers).all():
        _refuse_field(read, name, Dense(name), cure)
    return numbers
