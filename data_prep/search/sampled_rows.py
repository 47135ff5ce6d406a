"""The rows that a search uses: the first ones of the files, never those that `prepare` keeps for tests.

Shapes: `n` rows of the sample.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError, DataError
from data_prep.backend import choose_backend
from data_prep.formats.source_format import ColumnInput, TextInput
from data_prep.inputs.blocks import parse_input_block, read_range
from data_prep.inputs.files import find_sources
from data_prep.inputs.ranges import plan_ranges
from data_prep.schema.columns import LabelColumn, NumericColumn, SchemaColumn, TableColumn, UnusedColumn
from data_prep.schema.document import Schema
from data_prep.schema.format import SchemaFormat
from data_prep.schema.rows import unfinished

_WHOLE_FILE = 1 << 62
_LEAST_ROWS, _MOST_ROWS = 100, 1 << 40


@dataclass(frozen=True)
class SampledRows:
    """Numeric columns and a label.

    Attributes:
        columns: the schema's description of each.
        numbers: numbers of each column, as in the files, float64 `[n]`; null where they are missing.
        labels: labels 0 or 1, float32 `[n]`.
        train: number of rows, the first ones, for training; the others are for validation.
    """

    columns: tuple[NumericColumn, ...]
    numbers: tuple[pa.DoubleArray, ...]
    labels: NDArray[np.float32]
    train: int


def read_sample(
    inputs: Sequence[str], schema: Schema, label: str, rows: int, test_fraction: float, validation_fraction: float
) -> SampledRows:
    """Read the first rows of the files.

    It reads enough rows to be sure that all rows that it keeps are training rows of `bagpipe prepare` with the same
    files and `test_fraction`.

    Args:
        inputs: names and glob patterns of the files, in time order.
        schema: the schema of their columns; its transforms of numbers have no effect on what is read.
        label: name of the label.
        rows: most rows that are kept.
        test_fraction: the share of all rows, the last ones, that are for tests.
        validation_fraction: the share of the kept rows, the last ones, that are for validation.

    Raises:
        ConfigError: there would be no validation rows, or only test rows.
        DataError: a file is missing, damaged, or has a malformed row, or there are too few rows, or all labels are
            equal.
    """
    if not validation_fraction > 0:
        raise ConfigError(f"--validation-fraction {validation_fraction}: use more than 0: scores need validation rows")
    if _LEAST_ROWS / (1 - test_fraction) > _MOST_ROWS:
        raise ConfigError(f"--test-fraction {test_fraction}: leaves no rows to search by; use less, such as 0.1")
    sources = find_sources(inputs)
    columns = tuple(column for column in schema.columns if isinstance(column, NumericColumn))
    source_format = SchemaFormat(_reading(schema, columns, label))
    wanted = min(math.ceil(rows / (1 - test_fraction)) + 1, _MOST_ROWS)
    parts: list[pa.RecordBatch] = []
    read = 0
    for batch in _batches(sources, source_format):
        parts.append(batch.slice(0, wanted - read))
        read += len(parts[-1])
        if read == wanted:
            break
    kept = min(rows, read - round(test_fraction * read))
    train = kept - round(validation_fraction * kept)
    if kept < _LEAST_ROWS:
        raise DataError(f"{sources[0]}: {kept} training rows are too few to search by; give {_LEAST_ROWS} or more")
    table = pa.Table.from_batches(parts).slice(0, kept).combine_chunks()
    labels = table.column("label").to_numpy().astype(np.float32)
    for what, part in (("training", labels[:train]), ("validation", labels[train:])):
        if len(np.unique(part)) < 2:
            raise DataError(f"{sources[0]}: all {what} rows have label {part[:1]}; read more rows with --rows N")
    numbers = tuple(table.column(unfinished(column.name)).combine_chunks() for column in columns)
    return SampledRows(columns, numbers, labels, train)


def label_of(schema: Schema, name: str | None) -> str:
    """The label to predict: the one that is named, or the first.

    Raises:
        ConfigError: there is no such label.
    """
    labels = [column.name for column in schema.columns if isinstance(column, LabelColumn)]
    if name is not None and name not in labels:
        raise ConfigError(f"--label {name}: the schema has no such label; use one of {', '.join(labels)}")
    return name or labels[0]


def _reading(schema: Schema, columns: Sequence[NumericColumn], label: str) -> Schema:
    """A schema that reads the numbers as they are, the label and, since it must have one, a column with a table."""
    # Parsed rows hold numbers that are to be standardised as they are, with missing ones as nulls.
    plain = {c.name: NumericColumn(name=c.name, integer=c.integer, standardise=True) for c in columns}
    first_table = next(column for column in schema.outputs if isinstance(column, TableColumn))
    derived = tuple(column for column in schema.derived if column is first_table)
    sources = {first_table.name, label, *plain, *(name for column in derived for name in _sources(column))}

    def read(column: SchemaColumn) -> SchemaColumn:
        return plain.get(column.name) or (column if column.name in sources else UnusedColumn(name=column.name))

    return replace(schema, columns=tuple(map(read, schema.columns)), derived=derived)


def _sources(column: SchemaColumn) -> tuple[str, ...]:
    cross: tuple[str, ...] = getattr(column, "cross", ())
    source: str | None = getattr(column, "source", None)
    return cross if source is None else (source,)


def _batches(sources: Sequence[Path], source_format: SchemaFormat) -> Iterator[pa.RecordBatch]:
    """Rows of the files, some at a time."""
    native = choose_backend("auto", source_format)[1]
    opened = [source_format.open_input(source, native) for source in sources]
    for piece in plan_ranges(sources, opened, _WHOLE_FILE):
        how: TextInput | ColumnInput = opened[piece.source]
        for block in read_range(sources[piece.source], how, piece, None):
            first_line, batch, bad = parse_input_block(block, how)
            if bad:
                place = f"{sources[piece.source]}:{first_line + bad[0].index + 1}"
                raise DataError(f"{place}: {bad[0].reason}; correct the row")
            yield batch
