"""Runs tell exactly the rows that they were made of."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows import runs
from bagpipe_hpc.rows.runs import RowRun, numbers_of, overlap, rows_at, runs_of

progressions = st.builds(RowRun, st.integers(0, 60), st.integers(1, 12), st.integers(1, 20))


@dataclass(frozen=True)
class Listed:
    """The rows of one server, in any order; as much of a partition as runs want."""

    order: tuple[int, ...]
    servers: int = 1

    def rows_on(self, server: int) -> int:
        return len(self.order) if server == 0 else 0

    def rows_of(self, server: int, first: int, last: int) -> np.ndarray:
        assert server == 0
        return np.asarray(self.order[first:last], dtype=np.int64)


@given(progressions, progressions)
def test_an_overlap_is_what_both_have(one: RowRun, other: RowRun) -> None:
    both = sorted(set(one.rows(0, one.length)) & set(other.rows(0, other.length)))
    found = overlap(one, other)
    if found is None:
        assert not both
        return
    for run, first, step in zip((one, other), found.firsts, found.steps, strict=True):
        assert run.rows(0, run.length)[first::step][: found.length].tolist() == both


def test_an_overlap_of_huge_runs_is_exact() -> None:
    found = overlap(RowRun(3, 2**31 - 1, 2**31), RowRun(0, 2**31 - 3, 2**31))
    assert found is not None
    row = 3 + found.firsts[0] * (2**31 - 1)
    assert row == found.firsts[1] * (2**31 - 3)


@given(
    st.lists(st.integers(0, 200), unique=True, max_size=50) | st.lists(progressions, max_size=4),
    st.integers(1, 9),
    st.data(),
)
def test_rows_come_back_from_their_runs(parts: list, at_once: int, data: st.DataObject) -> None:
    rows = [row for part in parts for row in (part.rows(0, part.length) if isinstance(part, RowRun) else [part])]
    partition = Listed(tuple(int(row) for row in rows))
    runs._ROWS_AT_ONCE, kept = at_once, runs._ROWS_AT_ONCE
    try:
        found = runs_of(partition, 0)
        positions = np.asarray(sorted(data.draw(st.sets(st.integers(0, max(len(rows) - 1, 0))))), dtype=np.int64)
        positions = positions[: len(rows)]
        assert rows_at(partition, 0, positions).tolist() == [rows[position] for position in positions]
    finally:
        runs._ROWS_AT_ONCE = kept
    assert found is not None
    assert numbers_of(found, 0, len(rows)).tolist() == rows
    first = data.draw(st.integers(0, len(rows)))
    last = data.draw(st.integers(first, len(rows)))
    assert numbers_of(found, first, last).tolist() == rows[first:last]
    whole = runs_of(partition, 0)
    assert whole is not None
    assert runs_of(partition, 0, most=len(whole)) == whole
    assert not whole or runs_of(partition, 0, most=len(whole) - 1) is None


def test_progressions_take_a_run_each() -> None:
    order = [*range(5, 90, 5), *range(1000, 1040), 7, 3]
    assert runs_of(Listed(tuple(order)), 0) == [RowRun(5, 5, 17), RowRun(1000, 1, 40), RowRun(7, 1, 1), RowRun(3, 1, 1)]
