"""What a schema takes from the training rows, and the final rows that follow from it.

Shapes: `n` rows of a block.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from data_prep.formats.delimited import dense_column
from data_prep.formats.source_format import Parts
from data_prep.schema.columns import CategoricalColumn, NumericColumn
from data_prep.schema.document import Schema
from data_prep.schema.numbers import fault_of, fit_numbers, interval_of, is_ascending, refined
from data_prep.schema.rows import unfinished
from data_prep.schema.statistics import quantiles

Fitted = Mapping[str, Mapping[str, Any]]
"""What was taken, by the names of columns: for a numeric column what `fit_numbers` gives, for a categorical one the
`bounds` of its quantiles. Plain values that JSON holds without loss."""


def is_fitted(schema: Schema) -> bool:
    """Whether a schema takes anything from the training rows."""
    return bool(_fitted_numbers(schema) or _in_quantiles(schema))


def _fitted_numbers(schema: Schema) -> dict[int, NumericColumn]:
    """The numeric columns that take something from the training rows, by their index among the dense features."""
    dense = [column for column in schema.outputs if isinstance(column, NumericColumn)]
    return {number: column for number, column in enumerate(dense) if column.is_fitted}


def _in_quantiles(schema: Schema) -> dict[str, int]:
    """The categorical columns that are cut at quantiles, each with its number of intervals."""
    columns = (column for column in schema.outputs if isinstance(column, CategoricalColumn))
    return {column.name: column.quantiles for column in columns if column.quantiles is not None}


def fit(schema: Schema, parts: Parts) -> dict[str, dict[str, Any]]:
    """Take from the training rows what the schema needs.

    Args:
        schema: says what is taken.
        parts: gives the training rows, of `SourceFormat.schema`.
    """
    fitted = {
        column.name: fit_numbers(column, partial(_chunks, parts, unfinished(column.name)))
        for column in _fitted_numbers(schema).values()
    }
    for name, intervals in _in_quantiles(schema).items():
        fitted[name] = {"bounds": quantiles(partial(_present, parts, name), intervals)}
    return fitted


def _chunks(parts: Parts, column: str) -> Iterable[pa.Array]:
    for part in parts():
        yield from part.column(column).chunks


def _present(parts: Parts, column: str) -> Iterable[NDArray[np.float64]]:
    for chunk in _chunks(parts, column):
        yield chunk.drop_null().to_numpy().astype(np.float64)


class Refinement:
    """Makes final rows of parsed ones, with what was taken from the training rows; from any thread.

    Args:
        schema: says what was taken.
        fitted: the values that were taken.
        row_schema: schema of the final rows.
    """

    def __init__(self, schema: Schema, fitted: Fitted, row_schema: pa.Schema) -> None:
        self._row_schema, self._fitted = row_schema, fitted
        self._numbers = _fitted_numbers(schema)
        self._bounds = {name: np.array(fitted[name]["bounds"], np.float64) for name in _in_quantiles(schema)}

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The final rows `[n]` of parsed rows.

        Raises:
            DataError: a feature does not fit float32.
        """
        columns = []
        for name in self._row_schema.names:
            column = batch.column(name)
            if name in self._bounds:
                columns.append(interval_of(column, self._bounds[name]))
            elif name == "dense" and self._numbers:
                columns.append(self._dense(batch))
            else:
                columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._row_schema)

    def _dense(self, batch: pa.RecordBatch) -> pa.FixedSizeListArray:
        before = batch.column("dense")
        dense: NDArray[np.float32] = before.flatten().to_numpy().reshape(len(before), before.type.list_size).copy()
        for place, column in self._numbers.items():
            numbers = batch.column(unfinished(column.name))
            with np.errstate(over="ignore"):
                dense[:, place] = refined(numbers, column, self._fitted[column.name])
            _require_finite(column, numbers, dense[:, place])
        return dense_column(dense)


def _require_finite(column: NumericColumn, numbers: pa.DoubleArray, features: NDArray[np.float32]) -> None:
    """Refuse scaled features `[n]` that are not finite; the error names the first of the original numbers `[n]`."""
    if np.isfinite(features).all():
        return
    number = numbers[int(np.flatnonzero(~np.isfinite(features))[0])].as_py()
    shape = "" if column.fill else "the root " if column.root else "the logarithm " if column.log else ""
    named = "a missing number" if number is None else f"{shape}{number}"
    section = "columns" if column.source is None else "derived"
    key = "standardise = true" if column.standardise else f"scale = {column.scale!r}"
    raise DataError(
        f"{column.name}: {named} becomes too large for float32 by {key}, which goes by the training rows; correct the "
        f"row, or give {section}.{column.name} of the schema a clip"
    )


def check_fitted(schema: Schema, fitted: object) -> str | None:
    """What is wrong with recorded values, as words to put after their place; None where they fit the schema."""
    if not isinstance(fitted, dict):
        return f"is {fitted!r:.80} instead of an object"
    for column in _fitted_numbers(schema).values():
        if fault := fault_of(column, fitted.get(column.name)):
            return f"has no {fault} {column.name}"
    for name in _in_quantiles(schema):
        found = fitted.get(name)
        if not is_ascending(found.get("bounds") if isinstance(found, dict) else None):
            return f"has no ascending bounds of {name}"
    return None
