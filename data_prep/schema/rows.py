"""Makes parsed rows of the fields of a file's columns, as a schema says: fill, clip, logarithm, intervals, crosses.

Shapes: `n` rows, `N` dense features.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.formats.columns import (
    Column,
    Dense,
    Group,
    Label,
    Sparse,
    SparseList,
    TableLimits,
    Time,
    Unused,
    Values,
    Weight,
)
from data_prep.formats.delimited import dense_column, label_column, other_columns
from data_prep.formats.layout import RowLayout
from data_prep.schema.columns import (
    CategoricalColumn,
    GroupColumn,
    LabelColumn,
    MultiHotColumn,
    NumericColumn,
    SchemaColumn,
    SequenceColumn,
    TableColumn,
    TimestampColumn,
    UnusedColumn,
    WeightColumn,
)
from data_prep.schema.document import Schema
from data_prep.schema.numbers import filled, interval_of, parsed

CROSS_SEPARATOR = "\x1f"
"""Separates the two values of a cross if one is a text or a 64-bit integer: ASCII's unit separator."""
_DAY, _HOUR = 86_400, 3600


def field_of(column: SchemaColumn) -> Column:
    """How the field of a column is written in a file."""
    match column:
        case LabelColumn():
            return Label(column.name, column.positive, column.at_least)
        case NumericColumn():
            return Dense(column.name, log=column.integer)
        case CategoricalColumn(values="decimal"):
            return Dense(column.name)
        case CategoricalColumn(values="integer", in_intervals=True):
            return Dense(column.name, log=True)
        case CategoricalColumn():
            return Sparse(column.name, Values(column.values))
        case MultiHotColumn():
            return SparseList(column.name, Values(column.values), column.separator, weights=column.weights)
        case WeightColumn():
            return Weight(column.name)
        case TimestampColumn():
            return Time(column.name, column.format)
        case GroupColumn():
            return Group(column.name, Values(column.values))
        case UnusedColumn():
            return Unused(column.name)
    raise TypeError(f"{column} is no column of a file")


def layout_of(schema: Schema) -> RowLayout:
    """What the rows of a schema hold."""
    return RowLayout(tuple(_row_column(column, schema) for column in schema.outputs))


def _row_column(column: SchemaColumn, schema: Schema) -> Column:
    limits = None
    if isinstance(column, TableColumn) and (column.min_count or column.max_rows or column.hash_rows):
        limits = TableLimits(column.min_count, column.max_rows, column.hash_rows)
    match column:
        case LabelColumn(name=name):
            return Label(name)
        case WeightColumn(name=name):
            return Weight(name)
        case NumericColumn(name=name, log=log):
            return Dense(name, log=log)
        case CategoricalColumn(name=name, table=table):
            return Sparse(name, schema.values_of(column), table, limits)
        case MultiHotColumn(name=name, table=table):
            return SparseList(name, schema.values_of(column), column.separator, table, column.weights, limits)
        case TimestampColumn() | GroupColumn():
            return field_of(column)
    raise TypeError(f"{column} is no column of rows")


def unfinished(name: str) -> str:
    """Name of the column of parsed rows that holds the numbers of a column that takes something from training rows.

    No other column has this name: all other names are printable.
    """
    return f"{CROSS_SEPARATOR}{name}"


def parsed_schema(schema: Schema, row_schema: pa.Schema) -> pa.Schema:
    """The schema of parsed rows, before anything that is taken from training rows is applied.

    Numbers that will be cut at quantiles into categories are still numbers, and those of dense features that take
    something are in columns of their own (`unfinished`).

    Args:
        schema: says which columns these are.
        row_schema: schema of the final rows.
    """
    for column in schema.outputs:
        if isinstance(column, CategoricalColumn) and column.quantiles is not None:
            place = row_schema.get_field_index(column.name)
            row_schema = row_schema.set(place, pa.field(column.name, pa.float64()))
        if isinstance(column, NumericColumn) and column.is_fitted:
            row_schema = row_schema.append(pa.field(unfinished(column.name), pa.float64()))
    return row_schema


class SchemaRows:
    """Makes parsed rows of fields, from any thread.

    Args:
        schema: says how.
        layout: its `layout_of`.
        parsed: the `parsed_schema` of the rows.
        labelled: whether the fields that no prediction needs are there; otherwise absent labels, times and groups are
            0, and weights 1.
    """

    def __init__(self, schema: Schema, layout: RowLayout, parsed: pa.Schema, *, labelled: bool = True) -> None:
        self._labelled = labelled
        self._schema = schema
        self._layout = layout
        self._parsed = parsed
        self._named = {column.name: column for column in schema.columns}
        self._outputs = {column.name: column for column in schema.outputs}
        self._dense: list[Any] = [self._outputs[column.name] for column in layout.dense]
        self._features: list[Any] = [self._outputs[column.name] for column in layout.features]

    def rows_of(self, fields: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The rows `[n]`, made of the fields of each used column, as `fields.read_fields` gives them."""
        layout = self._layout
        rows = len(next(iter(fields.values())))
        if not self._labelled:
            fields = {**self._unneeded(rows), **fields}
        columns = [label_column([fields[name] for name in layout.labels])]
        if layout.weight is not None:
            columns.append(fields[layout.weight])
        to_be_fitted: list[pa.DoubleArray] = []
        if self._dense:
            dense = np.empty((rows, len(self._dense)), dtype=np.float32)
            for number, column in enumerate(self._dense):
                numbers = fields[column.source or column.name]
                if column.is_fitted:
                    to_be_fitted.append(parsed(numbers, column))
                    dense[:, number] = 0
                else:
                    dense[:, number] = filled(numbers, column)
            columns.append(dense_column(dense))
        columns += [self._feature(column, fields) for column in self._features]
        columns += other_columns(layout, fields) + to_be_fitted
        return pa.RecordBatch.from_arrays(columns, schema=self._parsed)

    def _unneeded(self, rows: int) -> dict[str, pa.Array]:
        """Fields of the columns that no prediction needs."""
        found = dict.fromkeys(self._layout.labels, pa.array(np.zeros(rows, np.uint8)))
        if self._layout.weight is not None:
            found[self._layout.weight] = pa.array(np.ones(rows, np.float32))
        others = [column.name for column in self._layout.columns if isinstance(column, Time | Group)]
        return found | dict.fromkeys(others, pa.array(np.zeros(rows, np.int64)))

    def _feature(self, column: Any, fields: Mapping[str, pa.Array]) -> pa.Array:
        if isinstance(column, MultiHotColumn):
            lists = fields[column.name]
            longest = column.longest if isinstance(column, SequenceColumn) else None
            return lists if longest is None else newest(lists, longest)
        if column.cross:
            first, second = ((self._feature(self._named[name], fields)) for name in column.cross)
            return crossed(first, second)
        source = fields[column.source or column.name]
        if column.missing is not None:
            source = pc.fill_null(source, _filling(column.missing, source.type))
        if column.quantiles is not None:
            return source.cast(pa.float64(), safe=False)
        if column.bucketise:
            return interval_of(source, column.bucketise)
        if column.part:
            return part_of(source, column.part)
        if column.modulo:
            return _remainder(source, column.modulo)
        return source


def newest(lists: pa.ListArray, longest: int) -> pa.ListArray:
    """The last `longest` values of each list; shorter lists stay as they are."""
    offsets: NDArray[np.int32] = lists.offsets.to_numpy()
    lengths = np.diff(offsets)
    if lengths.max(initial=0) <= longest:
        return lists
    kept = np.minimum(lengths, longest)
    new = np.concatenate(([0], np.cumsum(kept))).astype(np.int32)
    places = np.arange(new[-1]) + np.repeat(offsets[1:] - new[1:], kept)
    return pa.ListArray.from_arrays(pa.array(new), lists.values.take(pa.array(places)))


def crossed(first: pa.Array, second: pa.Array) -> pa.Array:
    """A value for each pair of values `[n]`, missing where one of the two is.

    Returns:
        int64 of the 32 bits of both; or a text of both with `CROSS_SEPARATOR` between them. If one of the texts holds
        the separator, another one and the length of the first text follow, so that no other pair gives the same text.
    """
    if pa.types.is_uint32(first.type) and pa.types.is_uint32(second.type):
        upper, lower = (values.fill_null(0).to_numpy().astype(np.uint64) for values in (first, second))
        missing = pc.or_(first.is_null(), second.is_null()).to_numpy(zero_copy_only=False)
        return pa.array((upper << np.uint64(32) | lower).view(np.int64), mask=missing if missing.any() else None)
    texts = pc.binary_join_element_wise(_as_text(first), _as_text(second), CROSS_SEPARATOR)
    unclear = pc.greater(pc.count_substring(texts, CROSS_SEPARATOR), 1)
    if not pc.any(unclear).as_py():
        return texts
    lengths = pc.utf8_length(_as_text(first)).cast(pa.string())
    return pc.if_else(unclear, pc.binary_join_element_wise(texts, lengths, CROSS_SEPARATOR), texts)


def part_of(seconds: pa.Int64Array, part: str) -> pa.UInt32Array:
    """A part, in UTC, of times `[n]` in seconds since 1970; missing where the time is."""
    match part:
        case "hour":
            found = pc.divide(_modulo(seconds, _DAY), _HOUR)
        case "weekday":  # the 1st of January 1970 was a Thursday
            found = _modulo(pc.add(pc.divide(pc.subtract(seconds, _modulo(seconds, _DAY)), _DAY), 3), 7)
        case "day":
            found = pc.day(seconds.cast(pa.timestamp("s")))
        case _:
            found = pc.month(seconds.cast(pa.timestamp("s")))
    return found.cast(pa.uint32())


def _filling(text: str, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_string(kind):
        return pa.scalar(text, kind)
    number = int(text, 16) if pa.types.is_uint32(kind) else float(text) if pa.types.is_floating(kind) else int(text)
    return pa.scalar(number, kind)


def _remainder(values: pa.Array, modulo: int) -> pa.Array:
    if pa.types.is_uint32(values.type):
        missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        return pa.array(values.fill_null(0).to_numpy() % np.uint32(modulo), mask=missing)
    return _modulo(values, modulo)


def _modulo(values: pa.Int64Array, by: int) -> pa.Int64Array:
    """The remainder, 0 or more, of integers `[n]`; missing where the integer is."""
    missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(values.fill_null(0).to_numpy() % by, mask=missing)


def _as_text(values: pa.Array) -> pa.StringArray:
    return values if pa.types.is_string(values.type) else values.cast(pa.string())
