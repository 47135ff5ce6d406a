"""Turns categorical values into table-local ids: by a vocabulary of frequent values, or by hashing.

Most of it is for values of 32 bits, which native code counts as well; `wide_values` is for all others.

Shapes: `n` values or rows, `F` columns, `V` values of a vocabulary.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagpipe_hpc.storage.vocabularies.vocabulary import TableValues, TableVocabulary
from bagpipe_hpc.storage.vocabularies.waiting_values import WaitingValues
from data_prep.formats.columns import Values
from data_prep.formats.layout import IdRule, Table
from data_prep.ordered_map import ordered_map, worker_threads
from data_prep.parsed_rows import ParsedRows
from data_prep.vocabularies import wide_values
from data_prep.vocabularies.wide_values import CountedValues, as_column

Ids = NDArray[np.int32] | NDArray[np.int64]
"""Ids of rows, wide enough for the largest table."""

_SLOTS_PER_VALUE = 4  # The fastest of 2, 4 and 8: probes are short, and the table still fits caches.
_HALF_BITS, _LOWER_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_GOLDEN_RATIO = np.uint32(0x9E3779B1)  # 2 ** 32 / golden ratio: the multiplier of Fibonacci hashing (Knuth, TAOCP 6.4)


_MOST_COUNTED = (1 << 32) - 1
"""Larger counts are taken as this one: then a count and a value fit 64 bits, which sort many times faster."""


class IdMap(Protocol):
    """Gives the values of one table their ids."""

    rows: int
    """Rows of the table: ids are 0 .. rows - 1."""

    def ids(self, column: pa.Array) -> NDArray[np.int64]:
        """Ids `[n]` of values `[n]`; a missing value (null) has id 0."""


class IdMaps:
    """Gives the values of all tables their ids.

    Args:
        tables: the tables.
        vocabularies: the vocabulary of each table; None where its values are hashed.
        rules: the rule of each table.
    """

    def __init__(
        self, tables: Sequence[Table], vocabularies: Sequence[TableVocabulary | None], rules: Sequence[IdRule]
    ) -> None:
        self._maps: list[IdMap] = [
            HashedIds(rule.hashed_rows) if vocabulary is None else VocabularyIds(table.values, vocabulary)
            for table, vocabulary, rule in zip(tables, vocabularies, rules, strict=True)
        ]

    def write_ids(self, columns: Sequence[pa.Array], tables: Sequence[int], ids: Ids) -> None:
        """As `backend.IdMaps.write_ids`."""
        for place, (column, table) in enumerate(zip(columns, tables, strict=True)):
            ids[:, place] = self._maps[table].ids(column)


def build_vocabularies(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    tables: Sequence[Table],
    train_rows: int,
    rules: Sequence[IdRule],
    told: Callable[[int], None],
) -> list[CountedValues | None]:
    """The values of each table in the first `train_rows` rows, with their counts; None for a table that is hashed.

    Args:
        pool: threads to use.
        rows: all parsed rows.
        tables: the tables.
        train_rows: how many of the rows count.
        rules: the rule of each table.
        told: called from any thread with the number of fields, rows x columns, that were counted; an error that it
            raises ends the count.
    """

    def count(table_and_rule: tuple[Table, IdRule]) -> CountedValues | None:
        table, rule = table_and_rule
        if rule.most_values is not None and rule.most_values < 0:
            told(train_rows * len(table.columns))
            return None
        counted = counted_values if table.values.is_32_bit else wide_values.counted_values
        values = counted(rows.values(table.columns, train_rows), rule.min_count)
        told(train_rows * len(table.columns))
        return None if rule.most_values is not None and len(values.values) > rule.most_values else values

    # Each table that is being counted holds its distinct values in memory, so even many cores count only four at once.
    return list(ordered_map(pool, count, zip(tables, rules, strict=True), ahead=min(4, worker_threads())))


def counted_values(column: pa.ChunkedArray, min_count: int) -> CountedValues:
    """The values of a column by their counts: frequent ones, which get ids, and rare ones.

    Memory is about 50 bytes for each distinct value.

    Args:
        column: unsigned 32-bit values of the training rows; missing ones are null.
        min_count: fewest occurrences of a value that gets an id of its own, 1 or more.
    """
    tally = pc.value_counts(column.drop_null())
    return by_count(tally.field("values").to_numpy(), tally.field("counts").to_numpy(), min_count, len(column))


def by_count(values: NDArray[np.uint32], counts: NDArray[np.int64], min_count: int, look_ups: int) -> CountedValues:
    """Distinct values `[D]` with their counts, sorted as in `CountedValues`.

    Args:
        values: distinct values, uint32 `[D]`.
        counts: how often each occurs, int64 `[D]`; more than 2 ** 32 - 1 is taken as that.
        min_count: fewest occurrences of a frequent value.
        look_ups: number of look-ups that were counted, including those of missing values.
    """
    counts = np.minimum(counts, _MOST_COUNTED)
    is_frequent = counts >= min_count
    keys = np.sort((_MOST_COUNTED - counts[is_frequent]).astype(np.uint64) << _HALF_BITS | values[is_frequent])
    rare = np.sort(values[~is_frequent].astype(np.uint64) << _HALF_BITS | counts[~is_frequent].astype(np.uint64))
    return CountedValues(
        keys.astype(np.uint32),
        _MOST_COUNTED - (keys >> _HALF_BITS).astype(np.int64),
        WaitingValues((rare >> _HALF_BITS).astype(np.uint32), (rare & _LOWER_HALF).astype(np.int64)),
        look_ups,
    )


def counts_of_ids(counted: CountedValues, buckets: int) -> NDArray[np.int64]:
    """How often each id is looked up, int64 `[rows]`.

    Args:
        counted: values of training rows; `V` of them have ids of their own.
        buckets: number of the table's unseen buckets.
    """
    others = np.zeros(1 + buckets, dtype=np.int64)
    others[0] = counted.look_ups - counted.counts.sum() - counted.rare.counts.sum()  # missing values
    add_unknown(others, counted.rare.values, counted.rare.counts)
    return np.concatenate((others, counted.counts))


def add_unknown(others: NDArray[np.int64], values: TableValues, counts: NDArray[np.int64]) -> None:
    """Count look-ups of values that have no id of their own.

    Args:
        others: look-ups of id 0 and of the unseen buckets, int64 `[1 + B]`; changed.
        values: the values, `[W]`.
        counts: look-ups of each value, int64 `[W]`; negative to take look-ups away.
    """
    if len(others) == 1:
        others[0] += counts.sum()
    elif len(values):
        np.add.at(others, HashedIds(len(others)).ids(as_column(values)), counts)


class Numbering:
    """Turns the place of a value in a vocabulary into its id.

    Args:
        vocabulary: vocabulary of the table.
    """

    def __init__(self, vocabulary: TableVocabulary) -> None:
        self.is_plain = not (vocabulary.unseen_buckets or len(vocabulary.free))
        """Whether the places are the ids."""
        self._ids = None if self.is_plain else np.concatenate(([0], vocabulary.ids))
        self._buckets = HashedIds(vocabulary.unseen_buckets + 1) if vocabulary.unseen_buckets else None

    def ids(self, column: pa.Array, places: NDArray[Any]) -> NDArray[Any]:
        """Ids `[n]` of values `[n]`.

        Args:
            column: the values, missing ones as nulls.
            places: places of the values, from 1; 0 for those that are missing or not in the vocabulary.
        """
        if self._ids is None:
            return places
        ids: NDArray[np.int64] = self._ids[places]
        if self._buckets is not None:
            unknown = np.flatnonzero(places == 0)
            ids[unknown] = self._buckets.ids(column.take(pa.array(unknown)))
        return ids


class VocabularyIds:
    """The ids of one table with a vocabulary.

    Args:
        values: kind of its values.
        vocabulary: which value has which id.
    """

    def __init__(self, values: Values, vocabulary: TableVocabulary) -> None:
        self.rows = vocabulary.rows
        self._places = places_of(values, vocabulary.values)
        self._numbering = Numbering(vocabulary)

    def ids(self, column: pa.Array) -> NDArray[np.int64]:
        """Ids `[n]` of values `[n]`; a missing value has id 0, one outside the vocabulary that of its bucket, or 0."""
        ids: NDArray[np.int64] = self._numbering.ids(column, self._places.ids(column))
        return ids


class Vocabulary:
    """Ids 1 .. V for the given values, 0 for all others and for missing ones.

    The values are in a hash table with open addressing, which is probed for a whole block of a column at once. numpy's
    `searchsorted` takes several times as long, and pyarrow's `index_in` builds its hash table anew on every call.

    Args:
        values: distinct values `[V]` in the order of their ids.
    """

    def __init__(self, values: NDArray[np.uint32]) -> None:
        self.rows = len(values) + 1
        bits = max(1, (_SLOTS_PER_VALUE * len(values)).bit_length())
        self._shift = np.uint32(max(0, 32 - bits))
        self._slot_mask = (1 << bits) - 1
        # A slot holds a value in its upper half and the value's id in its lower, so that a probe is one memory access.
        self._slots = np.zeros(1 << bits, dtype=np.uint64)
        self._insert(values)

    def ids(self, column: pa.UInt32Array) -> NDArray[np.int64]:
        """Ids `[n]` of values `[n]`; a missing value (null) and one outside the vocabulary have id 0."""
        values: NDArray[np.uint32] = column.fill_null(0).to_numpy()
        places = self._first_places(values)
        found = self._slots[places]
        # Each round moves values whose slot holds another value on to the next slot; an empty slot ends a probe.
        probing = np.flatnonzero(_met_another(found, values))
        while len(probing):
            places[probing] = (places[probing] + 1) & self._slot_mask
            found[probing] = self._slots[places[probing]]
            probing = probing[_met_another(found[probing], values[probing])]
        ids = (found & _LOWER_HALF).astype(np.int64)
        if column.null_count:
            ids[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return ids

    def _first_places(self, values: NDArray[np.uint32]) -> NDArray[np.int64]:
        return ((values * _GOLDEN_RATIO) >> self._shift).astype(np.int64) & self._slot_mask

    def _insert(self, values: NDArray[np.uint32]) -> None:
        entries = values.astype(np.uint64) << _HALF_BITS | np.arange(1, self.rows, dtype=np.uint64)
        places = self._first_places(values)
        while len(entries):
            free = self._slots[places] == 0
            self._slots[places[free]] = entries[free]  # Of several entries for a slot, one stays; others move.
            waiting = self._slots[places] != entries
            entries, places = entries[waiting], (places[waiting] + 1) & self._slot_mask


def _met_another(found: NDArray[np.uint64], values: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Whether each slot holds another value than the one that is sought, bool of the shape of `values`."""
    met: NDArray[np.bool_] = ((found >> _HALF_BITS) != values) & (found != 0)
    return met


class HashedIds:
    """Ids 1 .. rows - 1 by hashing, so that different values may share a row; 0 for missing values.

    The hash is the 64-bit finaliser of MurmurHash3, in integers only and so the same on every machine.

    Args:
        rows: rows of the table, 2 or more.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def ids(self, column: pa.Array) -> NDArray[np.int64]:
        """Ids `[n]` of values `[n]`."""
        mixed = wide_values.hash_keys(column)
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> np.uint64(33)
        ids = (mixed % np.uint64(self.rows - 1)).astype(np.int64) + 1
        if column.null_count:
            ids[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return ids


_VOCABULARIES: dict[Values, Callable[[Any], IdMap]] = {
    **{values: Vocabulary for values in Values if values.is_32_bit},
    Values.INTEGER: wide_values.IntegerVocabulary,
    Values.TEXT: wide_values.TextVocabulary,
}
"""For each kind of values, the class that finds their places, from 1."""


def places_of(kind: Values, values: TableValues) -> IdMap:
    """Finds the places of values `[V]` of a kind, from 1; 0 for other and missing values."""
    return _VOCABULARIES[kind](values)
