"""What a schema takes from the training rows: means, deviations and quantiles, exact whatever the order of the rows.

Sums are those of integers (`ExactSum`), and a quantile is one of the numbers themselves, found by counting, 16 bits of
its place at a time. So memory is constant, and ranks, threads and blocks change no bit.

Shapes: `n` numbers of a block.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.evaluation.exact_sum import ExactSum
from data_prep.formats.delimited import dense_column
from data_prep.formats.source_format import Parts
from data_prep.schema.columns import CategoricalColumn, NumericColumn
from data_prep.schema.document import Schema
from data_prep.schema.rows import interval_of, unscaled

Fitted = Mapping[str, Mapping[str, Any]]
"""What was taken, by the names of columns: `mean`, `deviation` and `rows` of a standardised one, `bounds` of quantiles.
Plain values that JSON holds without loss."""

_DIGIT_BITS = 16
_DIGITS = 4
_SPLIT = 2.0**27 + 1
_SIGN = np.uint64(1 << 63)


def is_fitted(schema: Schema) -> bool:
    """Whether a schema takes anything from the training rows."""
    return bool(standardised(schema) or _in_quantiles(schema))


def standardised(schema: Schema) -> dict[str, int]:
    """The columns that are standardised, each with its number among the dense features."""
    dense = [column for column in schema.outputs if isinstance(column, NumericColumn)]
    return {column.name: number for number, column in enumerate(dense) if column.standardise}


def _in_quantiles(schema: Schema) -> dict[str, int]:
    """The columns that are cut at quantiles, each with its number of intervals."""
    columns = (column for column in schema.outputs if isinstance(column, CategoricalColumn))
    return {column.name: column.quantiles for column in columns if column.quantiles is not None}


def fit(schema: Schema, parts: Parts) -> dict[str, dict[str, Any]]:
    """Take from the training rows what the schema needs.

    Args:
        schema: says what is standardised and what is cut at quantiles.
        parts: the training rows as `SourceFormat.schema` has them.
    """
    fitted: dict[str, dict[str, Any]] = {}
    places = standardised(schema)
    sums = {name: (ExactSum(), ExactSum()) for name in places}
    counts = dict.fromkeys(places, 0)
    for part in parts() if places else ():
        for name in places:
            for chunk in part.column(unscaled(name)).chunks:
                numbers: NDArray[np.float64] = chunk.drop_null().to_numpy()
                counts[name] += len(numbers)
                sums[name][0].add(numbers)
                add_squares(sums[name][1], numbers)
    for name, (total, squares) in sums.items():
        fitted[name] = {"rows": counts[name]} | _moments(counts[name], total, squares)
    for name, intervals in _in_quantiles(schema).items():
        fitted[name] = {"bounds": quantiles(partial(_numbers, parts, name), intervals)}
    return fitted


def add_squares(total: ExactSum, numbers: NDArray[np.float64]) -> None:
    """Add the squares of numbers `[n]`, of at most 2 ** 500, without rounding: halves of 26 bits have exact products.

    The halves are those of Dekker: A floating-point technique for extending the available precision, 1971.
    """
    scaled = numbers * _SPLIT
    upper = scaled - (scaled - numbers)
    lower = numbers - upper
    for product in (upper * upper, 2 * upper * lower, lower * lower):
        total.add(product)


def _moments(count: int, total: ExactSum, squares: ExactSum) -> dict[str, float]:
    """Mean and deviation of numbers by their sums; 0 and 1 where there are none, and 1 where all are alike."""
    if not count:
        return {"mean": 0.0, "deviation": 1.0}
    return {"mean": total.divided_by(count), "deviation": math.sqrt(total.variance(squares, count)) or 1.0}


def quantiles(blocks: Callable[[], Iterable[NDArray[np.float64]]], intervals: int) -> list[float]:
    """Ascending numbers that cut all numbers into intervals of about the same size.

    Args:
        blocks: gives the numbers from the beginning, some at a time; each time the same ones.
        intervals: how many are wanted; fewer result where many numbers are equal.

    Returns:
        Of the numbers in ascending order those at the places `k * count // intervals`, k = 1 .. intervals - 1, each
        once. An interval begins with one of them.
    """
    count = sum(len(numbers) for numbers in blocks())
    ranks = [k * count // intervals for k in range(1, intervals)] if count else []
    # Each rank is followed by the digits of its number's key: (digits known so far, rank among the numbers with them).
    wanted = [(0, rank) for rank in ranks]
    for digit in range(_DIGITS if wanted else 0):
        prefixes = np.unique(np.array([prefix for prefix, _ in wanted], np.uint64))
        counted = np.zeros((len(prefixes), 1 << _DIGIT_BITS), np.int64)
        shift = np.uint64((_DIGITS - 1 - digit) * _DIGIT_BITS)
        for numbers in blocks():
            keys = _keys(numbers) >> shift
            known, digits = keys >> np.uint64(_DIGIT_BITS), keys & np.uint64((1 << _DIGIT_BITS) - 1)
            places = np.minimum(np.searchsorted(prefixes, known), len(prefixes) - 1)
            ours = prefixes[places] == known
            np.add.at(counted, (places[ours], digits[ours].astype(np.int64)), 1)
        below = np.cumsum(counted, axis=1)
        found = []
        for prefix, rank in wanted:
            row = below[np.searchsorted(prefixes, np.uint64(prefix))]
            place = int(np.searchsorted(row, rank, side="right"))
            found.append(((prefix << _DIGIT_BITS) | place, rank - (int(row[place - 1]) if place else 0)))
        wanted = found
    bounds = _numbers_of(np.array([key for key, _ in wanted], np.uint64)).tolist()
    return [bound for number, bound in enumerate(bounds) if number == 0 or bound != bounds[number - 1]]


def _keys(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Integers `[n]` in the order of finite numbers `[n]`; -0 is 0."""
    bits = (numbers + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _numbers_of(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    return np.where(keys & _SIGN, keys & ~_SIGN, ~keys).view(np.float64)


def _numbers(parts: Parts, column: str) -> Iterable[NDArray[np.float64]]:
    for part in parts():
        for chunk in part.column(column).chunks:
            yield chunk.drop_null().to_numpy().astype(np.float64)


class Refinement:
    """Makes final rows of parsed ones, with what was taken from the training rows; from any thread.

    Args:
        schema: says what is standardised and what is cut at quantiles.
        fitted: what was taken.
        row_schema: of the final rows.
    """

    def __init__(self, schema: Schema, fitted: Fitted, row_schema: pa.Schema) -> None:
        self._row_schema = row_schema
        self._standardised = [
            (unscaled(name), place, fitted[name]["mean"], fitted[name]["deviation"])
            for name, place in standardised(schema).items()
        ]
        self._bounds = {name: np.array(fitted[name]["bounds"], np.float64) for name in _in_quantiles(schema)}

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The final rows `[n]` of parsed rows."""
        columns = []
        for name in self._row_schema.names:
            column = batch.column(name)
            if name in self._bounds:
                columns.append(interval_of(column, self._bounds[name]))
            elif name == "dense" and self._standardised:
                columns.append(self._dense(batch))
            else:
                columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._row_schema)

    def _dense(self, batch: pa.RecordBatch) -> pa.FixedSizeListArray:
        column = batch.column("dense")
        dense: NDArray[np.float32] = column.flatten().to_numpy().reshape(len(column), -1).copy()
        for name, place, mean, deviation in self._standardised:
            numbers = batch.column(name).fill_null(mean).to_numpy()
            dense[:, place] = (numbers - mean) / deviation
        return dense_column(dense)


def check_fitted(schema: Schema, fitted: object) -> str | None:
    """What is wrong with recorded values, to be put behind their place; None where they are those of the schema."""
    if not isinstance(fitted, dict):
        return f"is {fitted!r:.80} instead of an object"
    for name in standardised(schema):
        found = fitted.get(name)
        if (
            not isinstance(found, dict)
            or not _finite([found.get("mean"), found.get("deviation")])
            or (found["deviation"] <= 0)
        ):
            return f"has no mean and deviation of {name}"
    for name in _in_quantiles(schema):
        found = fitted.get(name)
        bounds = found.get("bounds") if isinstance(found, dict) else None
        if not isinstance(bounds, list) or not _finite(bounds) or any(low >= high for low, high in pairwise(bounds)):
            return f"has no ascending bounds of {name}"
    return None


def _finite(values: Sequence[object]) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)  # type: ignore[arg-type]
