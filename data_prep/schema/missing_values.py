"""Which values of a Parquet column are missing: nulls, NaN, empty texts, and those that the words of a schema name.

Shapes: `n` values of a column.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,6})?|[-+]?inf")


def without_missing(column: pa.Array, words: Sequence[str]) -> pa.Array:
    """The values `[n]` with nulls in place of those that are missing.

    An empty text is missing, and so are NaN and what a word means, as a text or as a number: `-1` means -1 and -1.0.
    Values that are neither texts nor numbers are kept.

    Args:
        column: a column that is neither a dictionary nor boolean; texts as string.
        words: texts that mean that a value is missing.
    """
    if pa.types.is_float16(column.type):  # pyarrow cannot compare these
        column = column.cast(pa.float32())
    missing = _missing(column, words)
    if not missing:
        return column
    return pc.if_else(reduce(pc.or_, missing), pa.scalar(None, column.type), column)


def _missing(column: pa.Array, words: Sequence[str]) -> list[pa.BooleanArray]:
    """Which values `[n]` are missing, one mask for each reason; null where the values are null."""
    kind = column.type
    if pa.types.is_string(kind):
        return [pc.is_in(column, pa.array(["", *words], pa.string()))]
    numbers = [number for word in words if (number := number_of(word, kind)) is not None]
    named = [pc.equal(column, number) for number in numbers]
    return [pc.is_nan(column), *named] if pa.types.is_floating(kind) else named


def number_of(word: str, kind: pa.DataType) -> pa.Scalar | None:
    """A word as a number of a type; None where no such number equals it.

    Args:
        word: a word of a schema, such as `-1` or `1e3`.
        kind: a type of integers, of floating-point or of decimal numbers.
    """
    if not _NUMBER.fullmatch(word) or (word.endswith("inf") and not pa.types.is_floating(kind)):
        return None
    if pa.types.is_floating(kind):
        with np.errstate(over="ignore"):
            number = kind.to_pandas_dtype()(word)  # rounded as the values are: 0.1 means the float32 nearest to it
        return None if np.isinf(number) and not word.endswith("inf") else pa.scalar(number, kind)
    exact = Decimal(word)
    try:
        if pa.types.is_decimal(kind):
            return pa.scalar(exact, kind)
        if pa.types.is_integer(kind) and abs(exact) < 1 << 64 and exact == int(exact):
            return pa.scalar(int(exact), kind)
    except (pa.ArrowInvalid, OverflowError):  # the type cannot hold it
        return None
    return None
