"""The nodes that are samples: reads a CSV of node numbers, labels and dense features.

Legend: `n` samples, `N` dense features, `K` labels.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.plan.bags import Int64s
from data_prep.formats.fields import shown
from data_prep.inputs.text_blocks import TextPosition, count_line_ends, read_blocks, split_first_line

NODE = "node"
"""Name of the column of node numbers, of the feature and of the table."""
MOST_CLASSES = 1000
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
    table = _read(file)
    for name in (NODE, *label_columns):
        if table.column_names.count(name) != 1:
            raise DataError(f"{file}: has no column {name!r}, or two; it has {', '.join(table.column_names)}")
    if table.num_rows == 0:
        raise DataError(f"{file}: has no node; name the nodes to train on, a line each")
    if twice := next((name for name, count in Counter(table.column_names).items() if count > 1), None):
        raise DataError(f"{file}: column {twice!r} is there twice; name each column once")
    if NODE in label_columns:
        raise ConfigError(f"--label {NODE}: has the nodes' numbers; name a column of labels")
    numbers = _whole_numbers(file, table, NODE)
    first = np.unique(numbers, return_index=True)[1]
    if len(first) < len(numbers):
        twice = np.setdiff1d(np.arange(len(numbers)), first)[0]
        raise DataError(f"{file}: node {numbers[twice]} comes again in row {twice + 1}; name each node once")
    labels = [_labels(file, table, name) for name in label_columns]
    others = [name for name in table.column_names if name not in (NODE, *label_columns)]
    dense = [_dense(file, table, name) for name in others]
    return Nodes(
        numbers,
        np.stack(dense, axis=1) if dense else np.empty((len(numbers), 0), np.float32),
        np.concatenate([columns for columns, _ in labels], axis=1),
        tuple(name for _, names in labels for name in names),
    )


def _read(file: Path) -> pa.Table:
    """The columns of a file."""
    text = b"".join(block.text for block in read_blocks(file, TextPosition()))
    header = split_first_line(text)[0]
    if found := _HEXADECIMAL.search(text, len(header)):
        line = count_line_ends(text[: found.start(1)]) + 1
        raise DataError(f"{file}:{line}: {shown(found[1])} is no decimal number; write 16 for 0x10")
    try:
        table = pa_csv.read_csv(pa.BufferReader(text))
        return table.rename_columns(table.column_names)  # decodes the names, which may raise
    except pa.ArrowInvalid as error:
        raise DataError(f"{file}: {str(error).partition(chr(10))[0]}; write a CSV file with a header") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: the name of a column is {shown(error.object)}, which is no UTF-8 text; convert the file, as with "
            "iconv -t UTF-8, or rename the column"
        ) from None


def _whole_numbers(file: Path, table: pa.Table, name: str) -> Int64s:
    """A column of whole numbers, 0 or more."""
    column = table.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(f"{file}: column {name!r} has a field that is no whole number; write 0 or more in each row")
    numbers: Int64s = column.to_numpy().astype(np.int64)
    if numbers.min() < 0:
        raise DataError(f"{file}: column {name!r} is {numbers.min()} in row {numbers.argmin() + 1}; use 0 or more")
    return numbers


def _labels(file: Path, table: pa.Table, name: str) -> tuple[NDArray[np.uint8], list[str]]:
    """The labels of a column, uint8 `[n, labels]`, and their names."""
    classes = _whole_numbers(file, table, name)
    if (most := int(classes.max())) >= MOST_CLASSES:
        raise DataError(f"{file}: column {name!r} has class {most}; number classes from 0, {MOST_CLASSES} at most")
    if most <= 1:
        return classes.astype(np.uint8).reshape(-1, 1), [name]
    return (classes[:, None] == np.arange(most + 1)).astype(np.uint8), [f"{name}_{one}" for one in range(most + 1)]


def _dense(file: Path, table: pa.Table, name: str) -> NDArray[np.float32]:
    """A column of numbers."""
    column = table.column(name)
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if not is_number or column.null_count:
        raise DataError(
            f"{file}: column {name!r} has a field that is no number; all columns but {NODE!r} and those of --label are "
            "dense features"
        )
    with np.errstate(over="ignore"):
        numbers: NDArray[np.float32] = pc.cast(column, pa.float64(), safe=False).to_numpy().astype(np.float32)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(f"{file}: column {name!r} is no finite float32 number in row {row + 1}")
    return numbers
