"""Vocabularies and ids in native code, equal to those of `vocabulary`, the definition.

Shapes: `n` rows, `F` columns, `V` values of a vocabulary.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from bagpipe_hpc.kernels.text.number_counts import NumberColumn
from bagpipe_hpc.kernels.text.value_ids import IdTables, ValueCounter
from bagpipe_hpc.kernels.text.wide_ids import (
    HashedIntegerIds,
    IntegerCounter,
    IntegerIds,
    TextColumn,
    TextTable,
)
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary
from data_prep.formats.columns import Values
from data_prep.formats.layout import IdRule, Table
from data_prep.parsed_rows import ParsedRows, values_of
from data_prep.vocabularies import vocabulary, wide_values
from data_prep.vocabularies.vocabulary import Ids, Numbering, by_count
from data_prep.vocabularies.wide_values import CountedValues

_TEXTS_AT_ONCE = 1 << 10
"""Texts that a table is given at a time: native code takes less than 2 GiB of them."""

Counter = ValueCounter | IntegerCounter | TextTable


def build_vocabularies(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    tables: Sequence[Table],
    train_rows: int,
    rules: Sequence[IdRule],
    told: Callable[[int], None],
) -> list[CountedValues | None]:
    """As `vocabulary.build_vocabularies`.

    Memory for each distinct value of all tables is 16 to 32 bytes, for wider integers 32 to 64, for texts 32 to 48
    besides the text.
    """
    rule_of = {table.name: rule for table, rule in zip(tables, rules, strict=True)}
    limits = {name: rule.most_values for name, rule in rule_of.items() if rule.most_values is not None}
    counters = {table.name: new_counter(table.values) for table in tables if limits.get(table.name, 0) >= 0}
    columns = {table.name: table.columns for table in tables}
    uncounted = sum(len(table.columns) for table in tables if table.name not in counters)
    fields_of_row = sum(len(columns[name]) for name in counters)
    look_ups = dict.fromkeys(counters, 0)
    told(train_rows * uncounted)
    for part in rows.parts(train_rows) if counters else ():
        # This waits for all tables, since two threads must not use a counter at once.
        chunks = [values_of(part, columns[name]) for name in counters]
        for name, found_values in zip(counters, pool.map(count_values, counters.values(), chunks), strict=True):
            look_ups[name] += found_values
        counters = {
            name: counter for name, counter in counters.items() if name not in limits or counter.values <= limits[name]
        }
        told(len(part) * fields_of_row)
    names = list(counters)

    def build(name: str) -> CountedValues:
        return counted(counters.pop(name), rule_of[name].min_count, look_ups[name])  # its table is no longer needed

    found: dict[str, CountedValues | None] = dict(zip(names, pool.map(build, names), strict=True))
    return [found.get(table.name) for table in tables]


def new_counter(values: Values) -> Counter:
    """A new counter of values of a kind."""
    if values.is_32_bit:
        return ValueCounter()
    return TextTable() if values is Values.TEXT else IntegerCounter()


def count_values(counter: Counter, chunks: Sequence[pa.Array]) -> int:
    """Count more values of a table; missing values do not count.

    Returns:
        Number of places, including those of missing values.
    """
    for chunk in chunks:
        if len(chunk):
            counter.add(_as_column(chunk), len(chunk))
    return sum(map(len, chunks))


def counted(counter: Counter, min_count: int, look_ups: int) -> CountedValues:
    """The counts of a counter, of `look_ups` places in all."""
    match counter:
        case ValueCounter():
            return by_count(*counter.tally(1), min_count, look_ups)
        case IntegerCounter():
            values, counts = counter.tally()
            return wide_values.by_count(pa.array(values), pa.array(counts), min_count, look_ups)
    characters, offsets, counts = counter.tally()
    texts = pa.LargeStringArray.from_buffers(len(counts), pa.py_buffer(offsets), pa.py_buffer(characters))
    return wide_values.by_count(texts, pa.array(counts), min_count, look_ups)


class IdMaps:
    """As `vocabulary.IdMaps`.

    Args:
        tables: the tables.
        vocabularies: the vocabulary of each table; None where its values are hashed.
        rules: the rule of each table.
    """

    def __init__(
        self, tables: Sequence[Table], vocabularies: Sequence[TableVocabulary | None], rules: Sequence[IdRule]
    ) -> None:
        # Values of 32 bits are looked up side by side. Native code hashes them to one number of rows; tables that are
        # hashed to another number, and hashed texts, are left to the definition.
        narrow = [number for number, table in enumerate(tables) if table.values.is_32_bit]
        hashed_rows = next((rules[number].hashed_rows for number in narrow if vocabularies[number] is None), 2)
        narrow = [number for number in narrow if vocabularies[number] or rules[number].hashed_rows == hashed_rows]
        self._narrow = {table: number for number, table in enumerate(narrow)}
        of_narrow = [vocabularies[number] for number in narrow]
        values: list[Any] = [vocabulary and vocabulary.values for vocabulary in of_narrow]
        self._tables = IdTables(values, hashed_rows)
        wide = {
            number: _wide_ids(table.values, vocabularies[number], rules[number])
            for number, table in enumerate(tables)
            if not table.values.is_32_bit
        }
        self._wide = {number: ids for number, ids in wide.items() if ids is not None}
        numberings = [Numbering(vocabulary) if vocabulary else None for vocabulary in vocabularies]
        self._numberings = [None if numbering and numbering.is_plain else numbering for numbering in numberings]
        others = [number for number in range(len(tables)) if number not in self._narrow and number not in self._wide]
        self._others = {table: number for number, table in enumerate(others)}
        of_others, of_rules = [vocabularies[number] for number in others], [rules[number] for number in others]
        self._maps = vocabulary.IdMaps([tables[number] for number in others], of_others, of_rules)

    def write_ids(self, columns: Sequence[pa.Array], tables: Sequence[int], ids: Ids) -> None:
        """As `backend.IdMaps.write_ids`."""
        if not len(ids):
            return
        if narrow := [place for place, table in enumerate(tables) if table in self._narrow]:
            numbers = [self._narrow[tables[place]] for place in narrow]
            self._tables.map_rows([_as_column(columns[place]) for place in narrow], ids, numbers, narrow)
        for place, table in enumerate(tables):
            if table in self._wide:
                self._wide[table].write(_as_column(columns[place]), ids[:, place])
            if table not in self._others and (numbering := self._numberings[table]):
                ids[:, place] = numbering.ids(columns[place], ids[:, place])
        if others := [place for place, table in enumerate(tables) if table in self._others]:
            of_others = np.empty((len(ids), len(others)), dtype=ids.dtype)
            numbers = [self._others[tables[place]] for place in others]
            self._maps.write_ids([columns[place] for place in others], numbers, of_others)
            ids[:, others] = of_others


def _wide_ids(
    values: Values, vocabulary: TableVocabulary | None, rule: IdRule
) -> IntegerIds | HashedIntegerIds | TextTable | None:
    """Gives values of a wide kind their places in a vocabulary, or their ids by hash; None for hashed texts."""
    if vocabulary is None:
        return None if values is Values.TEXT else HashedIntegerIds(rule.hashed_rows)
    if values is Values.INTEGER:
        return IntegerIds(np.asarray(vocabulary.values, np.int64))
    table = TextTable()
    for first in range(0, len(vocabulary.values), _TEXTS_AT_ONCE):
        texts = pa.array(vocabulary.values[first : first + _TEXTS_AT_ONCE], pa.string())
        table.add(_as_column(texts), len(texts))
    return table


def _as_column(array: pa.Array) -> Any:
    """The rows of a column in the form that native code takes for their type."""
    present, *buffers = array.buffers()
    bits = present.address if array.null_count else None
    if pa.types.is_integer(array.type):
        return NumberColumn(buffers[0].address, bits, array.offset)
    offsets, characters = buffers
    return TextColumn(characters.address if characters else None, offsets.address, bits, array.offset)
