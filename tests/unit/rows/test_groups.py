"""Tables of one width form a group with row numbers of its own."""

from dataclasses import replace

import numpy as np

from bagpipe_hpc.rows.groups import TableGroup, table_groups
from bagpipe_hpc.rows.initial_values import initial_weights
from bagpipe_hpc.rows.partition import Tables

TABLES = Tables((5, 3, 8, 2), ("C1", "C2", "C3", "C4"))


def test_tables_of_one_width_are_one_group() -> None:
    assert table_groups(TABLES, [16] * 4) == (TableGroup(16, (0, 1, 2, 3), replace(TABLES, width=16)),)


def test_groups_stand_in_the_order_of_their_first_tables() -> None:
    first, second, third = table_groups(TABLES, [8, 2, 8, 4])
    assert first == TableGroup(8, (0, 2), Tables((5, 8), ("C1", "C3"), width=8))
    assert second == TableGroup(2, (1,), Tables((3,), ("C2",), width=2))
    assert third == TableGroup(4, (3,), Tables((2,), ("C4",), width=4))
    assert [group.total_rows for group in (first, second, third)] == [13, 3, 2]


def test_rows_are_named_by_table_and_id() -> None:
    group, *_ = table_groups(TABLES, [8, 2, 8, 4])
    assert [group.row_name(row) for row in (0, 4, 5, 12)] == [
        "table C1, row 0",
        "table C1, row 4",
        "table C3, row 0",
        "table C3, row 7",
    ]


def test_a_row_begins_as_it_would_if_all_tables_had_its_width() -> None:
    """First weights depend on the table's number among all tables, not on the tables beside it in its group."""
    everywhere = initial_weights(np.arange(TABLES.total_rows), TABLES.offsets, 6, seed=5)
    group = table_groups(TABLES, [6, 2, 6, 4])[0]
    own = initial_weights(np.arange(13), group.tables.offsets, 6, seed=5, numbers=group.numbers)
    np.testing.assert_array_equal(own[:5], everywhere[:5])
    np.testing.assert_array_equal(own[5:], everywhere[8:16])
