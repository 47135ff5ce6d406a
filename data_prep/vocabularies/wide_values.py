"""Ids of integers of 64 bits and of texts: the definition of what `bagpipe_hpc.kernels.text.wide_ids` does natively.

Shapes: `n` values or rows, `V` values of a vocabulary.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagpipe_hpc.storage.vocabularies.vocabulary import TableValues
from bagpipe_hpc.storage.vocabularies.waiting_values import WaitingValues

_TEXT_KEY_BYTES = 8
_LEAST_SPAN, _MOST_SPREAD = 1 << 16, 8
"""A look-up table may have this many places, or this many for each value."""


_ARROW = {np.dtype(np.uint32): pa.uint32(), np.dtype(np.int64): pa.int64(), np.dtype(np.object_): pa.large_string()}


@dataclass(frozen=True, eq=False)
class CountedValues:
    """The values of a table in training rows.

    Attributes:
        values: values that get an id of their own, `[V]`, by descending count, equally frequent ones by value.
        counts: counts of these values, int64 `[V]`.
        rare: the other values.
        look_ups: number of look-ups that were counted, including those of missing values.
    """

    values: TableValues
    counts: NDArray[np.int64]
    rare: WaitingValues
    look_ups: int


def counted_values(column: pa.ChunkedArray, min_count: int) -> CountedValues:
    """The values of a column by their counts: frequent ones, which get ids, and rare ones.

    Args:
        column: int64 or string, missing values as nulls.
        min_count: fewest occurrences of a value that gets an id of its own, 1 or more.

    Returns:
        Integers, or texts as `str`; texts are compared by their UTF-8 bytes.
    """
    look_ups = len(column)
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())  # so that the distinct texts may have more than 2 GiB
    tally = pc.value_counts(column.drop_null())
    return by_count(tally.field("values"), tally.field("counts"), min_count, look_ups)


def by_count(values: pa.Array, counts: pa.Array, min_count: int, look_ups: int) -> CountedValues:
    """Distinct values `[D]` with their counts, sorted as in `CountedValues`.

    Args:
        values: distinct values, int64 or large_string `[D]`.
        counts: how often each occurs, int64 `[D]`.
        min_count: fewest occurrences of a frequent value.
        look_ups: number of look-ups that were counted, including those of missing values.
    """
    counted = pa.table({"value": values, "count": counts})
    is_frequent = pc.field("count") >= min_count
    frequent = counted.filter(is_frequent).sort_by([("count", "descending"), ("value", "ascending")])
    rare = counted.filter(~is_frequent).sort_by("value")
    of_rare = WaitingValues(rare.column("value").to_numpy(), rare.column("count").to_numpy())
    return CountedValues(frequent.column("value").to_numpy(), frequent.column("count").to_numpy(), of_rare, look_ups)


class IntegerVocabulary:
    """Ids 1 .. V for the given integers, 0 for all others and for missing ones.

    Values that lie close to each other are looked up in a table, which is several times as fast as the binary search
    for others.

    Args:
        values: distinct values `[V]` in the order of their ids.
    """

    def __init__(self, values: NDArray[np.int64]) -> None:
        self.rows = len(values) + 1
        self._table: NDArray[np.int64] | None = None
        self._first = int(values.min()) if len(values) else 0
        span = int(values.max()) - self._first + 1 if len(values) else 1
        if span <= max(_LEAST_SPAN, _MOST_SPREAD * len(values)):
            self._table = np.zeros(span + 1, dtype=np.int64)
            self._table[values - self._first] = np.arange(1, self.rows)
            return
        order = np.argsort(values)
        self._sorted = values[order]
        self._ids = order + 1

    def ids(self, column: pa.Int64Array) -> NDArray[np.int64]:
        """Ids `[n]` of values `[n]`; a missing value (null) and one outside the vocabulary have id 0."""
        values: NDArray[np.int64] = column.fill_null(0).to_numpy()
        if self._table is not None:
            # Differences are taken modulo 2 ** 64, so that every integer outside the table's span lands beyond its end.
            beyond = len(self._table) - 1
            distances = (values.view(np.uint64) - np.uint64(self._first % (1 << 64))).clip(max=np.uint64(beyond))
            return _null_to_zero(column, self._table[distances.astype(np.int64)])
        places = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        return _null_to_zero(column, np.where(self._sorted[places] == values, self._ids[places], 0))


class TextVocabulary:
    """Ids 1 .. V for the given texts, 0 for all others and for missing ones; a dictionary.

    Args:
        values: distinct texts `[V]` in the order of their ids.
    """

    def __init__(self, values: NDArray[np.object_]) -> None:
        self.rows = len(values) + 1
        self._ids: dict[str, int] = {text: number for number, text in enumerate(values, start=1)}

    def ids(self, column: pa.StringArray) -> NDArray[np.int64]:
        """Ids `[n]` of texts `[n]`; each distinct text of the column is looked up once."""
        distinct, places = _distinct(column)
        ids = np.array([self._ids.get(text, 0) for text in distinct] + [0], dtype=np.int64)
        found: NDArray[np.int64] = ids[places]
        return found


def as_column(values: NDArray[Any]) -> pa.Array:
    """Values as of `TableValues`, as a column like those of parsed rows; texts of a table may have more than 2 GiB."""
    return pa.array(values, _ARROW[values.dtype])


def hash_keys(column: pa.Array) -> NDArray[np.uint64]:
    """A key for each value, uint64 `[n]`: an integer itself, BLAKE2b of a text's bytes; any for a missing value."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column.fill_null(0).to_numpy().astype(np.uint64)  # type: ignore[no-any-return]  # pyarrow has no types
    distinct, places = _distinct(column)
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=_TEXT_KEY_BYTES).digest() for text in distinct)
    keys = np.append(np.frombuffer(digests, dtype="<u8").astype(np.uint64), np.uint64(0))
    found: NDArray[np.uint64] = keys[places]
    return found


def _distinct(column: pa.StringArray) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct texts, and the index of each row's text among them, int64 `[n]`; -1 for a missing one."""
    encoded = column.dictionary_encode()
    places: NDArray[np.int64] = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
    return encoded.dictionary.to_pylist(), places


def _null_to_zero(column: pa.Array, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    if column.null_count:
        ids[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return ids
