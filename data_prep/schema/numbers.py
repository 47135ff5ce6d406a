"""The numbers of a dense feature: filled, clipped, reshaped, scaled, partly with statistics of the training rows.

A column that takes nothing from the training rows is final once it is parsed (`filled`). Otherwise parsing transforms
its numbers as far as possible (`parsed`), `fit_numbers` takes statistics of the training rows, and `refined` makes the
feature.

Shapes: `n` rows.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_prep.schema.columns import NumericColumn
from data_prep.schema.statistics import at_ranks, bounds, moments, quantiles

Parsed = Callable[[], Iterable[pa.Array]]
"""Gives what `parsed` made of the training rows, some at a time from the beginning; the same at each call."""


def interval_of(numbers: pa.Array, bounds: "tuple[float, ...] | NDArray[np.float64]") -> pa.UInt32Array:
    """For each number, how many of the ascending bounds are at most that, `[n]`; null where the number is."""
    missing = _mask(numbers)
    places = np.searchsorted(np.asarray(bounds), numbers.fill_null(0).to_numpy(), side="right")
    return pa.array(places.astype(np.uint32), mask=missing)


def filled(numbers: pa.Array, column: NumericColumn) -> NDArray[Any]:
    """The feature `[n]` of a column that takes nothing from the training rows; missing ones become 0 at the end."""
    if column.is_missing:
        return numbers.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow has no types
    if column.clip is not None:
        return _transformed(numbers, column).fill_null(0).to_numpy()  # type: ignore[no-any-return]
    if column.missing is not None:
        numbers = numbers.fill_null(_as(column.missing, numbers.type))
    values: NDArray[Any] = (numbers.fill_null(0) if numbers.null_count else numbers).to_numpy()
    return _reshaped(values, column)  # a missing number is 0 here, whose logarithm and root are 0


def parsed(numbers: pa.Array, column: NumericColumn) -> pa.DoubleArray:
    """Numbers `[n]` of a column that takes something from the training rows, transformed as far as possible without it.

    Columns that are filled from the training rows keep the numbers of the files; others are filled, clipped, and turned
    into logarithms or roots. Missing numbers that are not filled are null.
    """
    return numbers.cast(pa.float64(), safe=False) if column.fill else _transformed(numbers, column)


def fit_numbers(column: NumericColumn, blocks: Parsed) -> dict[str, Any]:
    """What a column takes from the training rows, as plain values that JSON holds without loss.

    Returns:
        Those of the following that the column needs: `fill`; ascending `bounds` of the intervals; `rows`, `mean` and
        `deviation` of the numbers, to standardise them; `origin` and `spread`, to scale them otherwise.
    """
    fitted: dict[str, Any] = {}
    present = partial(_present, column, blocks, fitted)
    if column.fill == "mean":
        fitted["fill"] = moments(present)[1]
    elif column.fill == "median":
        fitted["fill"] = _median(present)
    if column.quantiles is not None:
        fitted["bounds"] = quantiles(present, column.quantiles)
    if column.standardise:
        fitted["rows"], fitted["mean"], fitted["deviation"] = moments(present)
    elif column.scale == "min_max":
        least, most = bounds(present)
        fitted["origin"], fitted["spread"] = least, most - least or 1.0
    elif column.scale == "robust":
        fitted["origin"] = _median(present)
        quarters = quantile_numbers(present, (0.25, 0.75))
        fitted["spread"] = quarters[1] - quarters[0] or 1.0
    return fitted


def refined(numbers: pa.DoubleArray, column: NumericColumn, fitted: Mapping[str, Any]) -> NDArray[np.float64]:
    """The feature `[n]`, made of what `parsed` and `fit_numbers` gave; missing ones are 0."""
    numbers = _unscaled(numbers, column, fitted)
    missing, values = _mask(numbers), numbers.fill_null(0).to_numpy()
    if column.standardise:
        values = (values - fitted["mean"]) / fitted["deviation"]
    elif column.scale is not None:
        values = (values - fitted["origin"]) / fitted["spread"]
    return values if missing is None else np.where(missing, 0.0, values)


def fault_of(column: NumericColumn, fitted: object) -> str | None:
    """What is wrong with the recorded values of a column; None where they are as `fit_numbers` gives them."""
    found = fitted if isinstance(fitted, Mapping) else {}
    if column.fill is not None and not _finite([found.get("fill")]):
        return "number to fill"
    intervals = found.get("bounds")
    if column.quantiles is not None and not is_ascending(intervals):
        return "ascending bounds of"
    for wanted, origin, spread in (
        (column.standardise, "mean", "deviation"),
        (column.scale is not None, "origin", "spread"),
    ):
        if wanted and not (_finite([found.get(origin), found.get(spread)]) and found[spread] > 0):
            return f"{origin} and {spread} of"
    return None


def is_ascending(found: object) -> bool:
    """Whether these are finite numbers, each larger than the one before."""
    return isinstance(found, list) and _finite(found) and all(low < high for low, high in pairwise(found))


def quantile_numbers(blocks: Callable[[], Iterable[NDArray[np.float64]]], shares: Sequence[float]) -> list[float]:
    """The quantiles of the numbers at these shares, 0 to 1; 0 where there are no numbers."""
    count = sum(len(numbers) for numbers in blocks())
    return at_ranks(blocks, [min(int(share * count), count - 1) for share in shares]) if count else [0.0] * len(shares)


def _median(blocks: Callable[[], Iterable[NDArray[np.float64]]]) -> float:
    return quantile_numbers(blocks, (0.5,))[0]


def _present(column: NumericColumn, blocks: Parsed, fitted: Mapping[str, Any]) -> Iterator[NDArray[np.float64]]:
    """The numbers that are not missing, transformed as far as what was taken so far allows."""
    for numbers in blocks():
        yield _unscaled(numbers, column, fitted).drop_null().to_numpy()


def _unscaled(numbers: pa.DoubleArray, column: NumericColumn, fitted: Mapping[str, Any]) -> pa.DoubleArray:
    """The numbers filled, clipped and reshaped with those values that are in `fitted`."""
    if column.fill and "fill" in fitted:
        numbers = _transformed(numbers.fill_null(fitted["fill"]), column)
    if "bounds" in fitted:
        numbers = interval_of(numbers, np.array(fitted["bounds"], np.float64)).cast(pa.float64())
    return numbers


def _transformed(numbers: pa.Array, column: NumericColumn) -> pa.DoubleArray:
    """Numbers `[n]` filled with `missing`, clipped, and turned into logarithms or roots; null where still missing."""
    if column.missing is not None:
        numbers = numbers.fill_null(_as(column.missing, numbers.type))
    if column.clip is None and not (column.log or column.root):
        return numbers.cast(pa.float64(), safe=False)
    missing = _mask(numbers)
    values: NDArray[Any] = numbers.fill_null(0).to_numpy()
    if column.clip is not None:
        values = np.clip(values.astype(np.float64), *column.clip)
    return pa.array(_reshaped(values, column), mask=missing)


def _reshaped(values: NDArray[Any], column: NumericColumn) -> NDArray[Any]:
    if column.log:
        values = np.log(np.maximum(values, 0) + 1.0)
    elif column.root:
        values = np.copysign(np.sqrt(np.abs(values.astype(np.float64))), values)
    return values


def _mask(numbers: pa.Array) -> NDArray[np.bool_] | None:
    if not numbers.null_count:
        return None
    missing: NDArray[np.bool_] = numbers.is_null().to_numpy(zero_copy_only=False)
    return missing


def _as(number: float, kind: pa.DataType) -> Any:
    return int(number) if pa.types.is_integer(kind) else number


def _finite(values: Sequence[object]) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)  # type: ignore[arg-type]
