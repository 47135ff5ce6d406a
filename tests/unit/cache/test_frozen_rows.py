"""Rows of frozen tables are passed over by updates, all others are not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.cache.frozen_rows import FrozenRows
from bagpipe_hpc.rows.partition import Tables

CPU = torch.device("cpu")


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6))
def test_each_row_is_as_its_table(tables: list[tuple[int, bool]]) -> None:
    names = tuple(f"C{number}" for number in range(len(tables)))
    frozen = {name for name, (_, is_frozen) in zip(names, tables, strict=True) if is_frozen}
    found = FrozenRows.of(frozen, Tables(tuple(rows for rows, _ in tables), names), CPU)
    expected = [not is_frozen for rows, is_frozen in tables for _ in range(rows)]
    if not frozen:
        assert found is None
    else:
        assert found is not None
        backwards = torch.arange(len(expected) - 1, -1, -1)
        assert found.change(backwards).tolist() == expected[::-1]


@pytest.mark.parametrize("names", [set(), {"C9"}])
def test_without_a_frozen_table_of_these_nothing_is_looked_for(names: set[str]) -> None:
    assert FrozenRows.of(names, Tables((3, 2), ("C1", "C2")), CPU) is None
