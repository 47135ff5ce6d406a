"""Rows of a call are sorted by their servers: each is found where the partition says, and is counted once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows.partition import RoundRobinPartition, RowPartition, Tables
from bagpipe_hpc.rows.ranges import ContiguousPartition
from bagpipe_hpc.rows.server_parts import RowSorter

ROWS = 23


def partitions(servers: int) -> list[RowPartition]:
    return [RoundRobinPartition(ROWS, servers), ContiguousPartition.place(Tables((ROWS,), ("C1",)), servers, None)]


@given(st.lists(st.integers(0, ROWS - 1), max_size=40), st.integers(1, 4), st.sets(st.integers(0, 3)))
def test_each_row_is_where_the_partition_says(rows: list[int], servers: int, near: set[int]) -> None:
    wanted = np.asarray(rows, dtype=np.int64)
    here = sorted(server for server in near if server < servers)
    for partition in partitions(servers):
        sorter = RowSorter(partition, here)
        order, near_parts, far_parts = sorter.by_server(wanted, here, "got")
        ordered = wanted if order is None else wanted[order]
        assert sum(part.places.size for part in (*near_parts, *far_parts)) == wanted.size
        for part in (*near_parts, *far_parts):
            own = ordered[part.where]
            first = sorter.first_rows[part.server] if part.server in here else 0
            assert (partition.owner(own) == part.server).all()
            np.testing.assert_array_equal(part.places, partition.offset(own) + first)
        assert {part.server for part in near_parts} <= set(here)
        assert not {part.server for part in far_parts} & set(here)
        np.testing.assert_array_equal(
            sorter.moved["got"], np.bincount(partition.owner(wanted), minlength=servers).astype(np.int64)
        )


@pytest.mark.parametrize("servers", [1, 3])
def test_rows_of_near_servers_lie_behind_each_other(servers: int) -> None:
    every = np.arange(ROWS)
    for partition in partitions(servers):
        sorter = RowSorter(partition, range(servers))
        assert sorted(sorter.near_index(every, "put").tolist()) == list(range(sorter.rows_here)) == every.tolist()
        assert sorter.moved["put"].sum() == ROWS
        assert not sorter.moved["got"].any()
