"""Tables are dealt out by what they cost to count, each to one rank."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from data_prep.counted_tables import deal_tables
from data_prep.formats.layout import Table, Values
from data_prep.parsed_rows import ParsedRows

ROWS = 1000


class Rows(ParsedRows):
    """Parsed rows that lie in memory: of column `Cn` every n-th value is another one."""

    def __init__(self, columns: int) -> None:
        super().__init__(Path(), [])
        self.rows = ROWS
        values = [[row // number for row in range(ROWS)] for number in range(1, columns + 1)]
        names = [f"C{number}" for number in range(1, columns + 1)]
        self._batch = pa.RecordBatch.from_arrays([pa.array(column, pa.uint32()) for column in values], names)

    def read(self, first: int, last: int) -> list[pa.RecordBatch]:
        return [self._batch.slice(first, last - first)]


def tables(count: int) -> Sequence[Table]:
    return [Table(f"C{number}", Values.HEX, (f"C{number}",)) for number in range(1, count + 1)]


@given(st.integers(1, 12), st.integers(1, 15))
def test_each_table_goes_to_one_rank(count: int, ranks: int) -> None:
    dealt = deal_tables(Rows(count), tables(count), ranks)
    assert len(dealt) == ranks
    assert sorted(table for own in dealt for table in own) == list(range(count))
    assert all(own == sorted(own) for own in dealt)
    assert sum(map(bool, dealt)) == min(count, ranks)


def test_large_tables_are_not_together() -> None:
    dealt = deal_tables(Rows(6), tables(6), 2)
    assert [0 in own for own in dealt] != [1 in own for own in dealt]
