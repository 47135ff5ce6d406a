"""Vocabularies and ids by native code, equal to those of `vocabulary`, the definition.

Native code counts values of 32 bits (`Values.is_32_bit`); the definition does the tables of other values.

Shapes: `n` rows, `F` columns, `V` values of a vocabulary.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from bagpipe_hpc.kernels.value_ids import Column, IdTables, ValueCounter
from bagpipe_hpc.storage.shards.vocabulary import TableVocabulary
from data_prep import vocabulary
from data_prep.formats.layout import IdRule, Table
from data_prep.parsed_rows import ParsedRows, values_of
from data_prep.vocabulary import Ids, Numbering, by_count
from data_prep.wide_values import CountedValues


def build_vocabularies(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    tables: Sequence[Table],
    train_rows: int,
    rules: Sequence[IdRule],
    told: Callable[[int], None],
) -> list[CountedValues | None]:
    """As `vocabulary.build_vocabularies`; memory is 16 to 32 bytes for each distinct value of all tables."""
    rule_of = {table.name: rule for table, rule in zip(tables, rules, strict=True)}
    limits = {name: rule.most_values for name, rule in rule_of.items() if rule.most_values is not None}
    counters = {
        table.name: ValueCounter() for table in tables if table.values.is_32_bit and limits.get(table.name, 0) >= 0
    }
    columns = {table.name: table.columns for table in tables}
    counted = set(counters)
    fields_of_row = sum(len(columns[name]) for name in counters)
    look_ups = dict.fromkeys(counters, 0)
    for part in rows.parts(train_rows) if counters else ():
        # Waits for all tables: a counter is not for two threads at once.
        chunks = [values_of(part, columns[name]) for name in counters]
        for name, found_values in zip(counters, pool.map(count_values, counters.values(), chunks), strict=True):
            look_ups[name] += found_values
        counters = {
            name: counter for name, counter in counters.items() if name not in limits or counter.values <= limits[name]
        }
        told(len(part) * fields_of_row)
    names = list(counters)

    def build(name: str) -> CountedValues:
        tally = counters.pop(name).tally(1)  # its table is no longer needed
        return by_count(*tally, rule_of[name].min_count, look_ups[name])

    found: dict[str, CountedValues | None] = dict(zip(names, pool.map(build, names), strict=True))
    others = [table for table in tables if table.name not in counted]
    of_others = vocabulary.build_vocabularies(
        pool, rows, others, train_rows, [rule_of[table.name] for table in others], told
    )
    found |= {table.name: values for table, values in zip(others, of_others, strict=True)}
    return [found.get(table.name) for table in tables]


def count_values(counter: ValueCounter, chunks: Sequence[pa.UInt32Array]) -> int:
    """Count more values of a table; missing values do not count.

    Returns:
        Number of places, those of missing values among them.
    """
    for chunk in chunks:
        if len(chunk):
            counter.add(_as_column(chunk), len(chunk))
    return sum(map(len, chunks))


class IdMaps:
    """As `vocabulary.IdMaps`.

    Args:
        tables: the tables.
        vocabularies: of each table; None where its values are hashed.
        rules: of each table.
    """

    def __init__(
        self, tables: Sequence[Table], vocabularies: Sequence[TableVocabulary | None], rules: Sequence[IdRule]
    ) -> None:
        # Native code hashes to one number of rows; tables that are hashed to another are left to the definition.
        narrow = [number for number, table in enumerate(tables) if table.values.is_32_bit]
        hashed_rows = next((rules[number].hashed_rows for number in narrow if vocabularies[number] is None), 2)
        native = [number for number in narrow if vocabularies[number] or rules[number].hashed_rows == hashed_rows]
        others = [number for number in range(len(tables)) if number not in native]
        self._native = {table: number for number, table in enumerate(native)}
        self._others = {table: number for number, table in enumerate(others)}
        of_native = [vocabularies[number] for number in native]
        values: list[Any] = [vocabulary and vocabulary.values for vocabulary in of_native]
        of_others = [vocabularies[number] for number in others]
        self._tables = IdTables(values, hashed_rows)
        numberings = [Numbering(vocabulary) if vocabulary else None for vocabulary in of_native]
        self._numberings = [None if numbering and numbering.is_plain else numbering for numbering in numberings]
        of_rules = [rules[number] for number in others]
        self._maps = vocabulary.IdMaps([tables[number] for number in others], of_others, of_rules)

    def write_ids(self, columns: Sequence[pa.Array], tables: Sequence[int], ids: Ids) -> None:
        """Write the ids of `n` rows of columns, each with the number of its table, to `ids [n, F]`, contiguous."""
        if not len(ids):
            return
        native = [place for place, table in enumerate(tables) if table in self._native]
        others = [place for place, table in enumerate(tables) if table in self._others]
        of_native = ids if not others else np.empty((len(ids), len(native)), dtype=ids.dtype)
        if native:
            numbers = [self._native[tables[place]] for place in native]
            self._tables.map_rows([_as_column(columns[place]) for place in native], of_native, numbers)
            for at, (place, number) in enumerate(zip(native, numbers, strict=True)):
                if numbering := self._numberings[number]:
                    of_native[:, at] = numbering.ids(columns[place], of_native[:, at])
        if others:
            ids[:, native] = of_native
            of_others = np.empty((len(ids), len(others)), dtype=ids.dtype)
            numbers = [self._others[tables[place]] for place in others]
            self._maps.write_ids([columns[place] for place in others], numbers, of_others)
            ids[:, others] = of_others


def _as_column(array: pa.UInt32Array) -> Column:
    present, values = array.buffers()
    return Column(values.address, present.address if array.null_count else None, array.offset)
