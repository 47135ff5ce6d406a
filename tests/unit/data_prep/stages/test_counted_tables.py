"""Tables are dealt out by what they cost to count, each to one rank; what was counted comes back from files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.vocabularies.waiting_values import WaitingValues
from data_prep.formats.columns import Values
from data_prep.formats.layout import Table
from data_prep.ordered_map import worker_threads
from data_prep.parsed_rows import ParsedRows
from data_prep.preparation_state import PreparationState, WorkFolder
from data_prep.ranks.team import alone
from data_prep.stages.counted_tables import Counted, _save, count_tables, counted_tables, deal_tables
from data_prep.vocabularies.hashed_counts import HashedCounts
from data_prep.vocabularies.wide_values import CountedValues

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


def counted(*values: object) -> CountedValues:
    """The last value is rare."""
    kind = np.dtype(object) if isinstance(values[0], str) else np.dtype(np.uint32)
    found = np.array(values, dtype=kind)
    counts = np.arange(len(values), 0, -1, dtype=np.int64)
    return CountedValues(found[:-1], counts[:-1], WaitingValues(found[-1:], counts[-1:]), 99)


def same(one: Counted, other: Counted) -> bool:
    if isinstance(one, HashedCounts) or isinstance(other, HashedCounts):
        return (
            isinstance(one, HashedCounts)
            and isinstance(other, HashedCounts)
            and (one.counts is other.counts is None or np.array_equal(one.counts, other.counts))
        )
    pairs = [(one.values, other.values), (one.counts, other.counts)]
    pairs += [(one.rare.values, other.rare.values), (one.rare.counts, other.rare.counts)]
    return one.look_ups == other.look_ups and all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    folder = WorkFolder(tmp_path, PreparationState((), {}, (), 1))
    folder.parts_folder.mkdir()
    return folder


def test_counts_come_back_whichever_rank_counted_them(work: WorkFolder) -> None:
    of_ids = [HashedCounts(None), HashedCounts(np.array([0, 7, 1]))]
    given = [counted(7, 5, 9), of_ids[0], counted("a", "b", "\u00fc"), counted(1), of_ids[1]]
    _save(work.parts_folder / "counted-00001.arrows", [(2, given[2]), (4, given[4]), (1, given[1])])
    _save(work.parts_folder / "counted-00000.arrows", [(0, given[0]), (3, given[3])])
    found = list(counted_tables(work, tables(5)))
    assert all(same(one, other) for one, other in zip(given, found, strict=True))


def test_only_what_is_missing_is_counted_again(work: WorkFolder) -> None:
    _save(work.parts_folder / "counted-00001.arrows", [(1, counted(7, 5, 9)), (2, HashedCounts(None))])
    asked: list[str] = []

    def count(chosen: Sequence[Table]) -> Iterator[tuple[int, Counted]]:
        asked.extend(table.name for table in chosen)
        return ((place, counted(4, 3)) for place in reversed(range(len(chosen))))

    for _ in range(2):
        count_tables(alone(lambda _: None, worker_threads()), Rows(4), ROWS, work, tables(4), count)
    assert asked == ["C1", "C4"]
    assert len(list(work.parts_folder.iterdir())) == 2
    expected = [counted(4, 3), counted(7, 5, 9), HashedCounts(None), counted(4, 3)]
    assert all(same(one, other) for one, other in zip(expected, counted_tables(work, tables(4)), strict=True))


@pytest.mark.parametrize("kept", [9, 0.5, -40])
def test_a_damaged_file_is_named(kept: float, work: WorkFolder) -> None:
    path = work.parts_folder / "counted-00000.arrows"
    _save(path, [(0, counted(*range(100)))])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if kept == 0.5 else int(kept)])
    with pytest.raises(DataError, match=r"counted-00000\.arrows: the values .* cannot be read .*remove"):
        list(counted_tables(work, tables(1)))
