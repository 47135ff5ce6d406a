"""Every row has one place on one server."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows.partition import RoundRobinPartition, RowPartition, table_offsets

partitions = st.builds(RoundRobinPartition, total_rows=st.integers(0, 500), servers=st.integers(1, 12))


@given(partitions)
def test_owner_and_offset_invert_rows_of(partition: RowPartition) -> None:
    for server in range(partition.servers):
        held = partition.rows_on(server)
        rows = partition.rows_of(server, 0, held)
        assert (partition.owner(rows) == server).all()
        assert partition.offset(rows).tolist() == list(range(held))


@given(partitions)
def test_the_servers_hold_every_row_once_and_evenly(partition: RoundRobinPartition) -> None:
    counts = [partition.rows_on(server) for server in range(partition.servers)]
    placed = np.concatenate([partition.rows_of(server, 0, held) for server, held in enumerate(counts)])
    assert sorted(placed.tolist()) == list(range(partition.total_rows))
    assert max(counts) - min(counts) <= 1


@given(partitions, st.data())
def test_a_range_of_offsets_is_that_part_of_all_rows(partition: RoundRobinPartition, data: st.DataObject) -> None:
    server = data.draw(st.integers(0, partition.servers - 1))
    held = partition.rows_on(server)
    first = data.draw(st.integers(0, held))
    last = data.draw(st.integers(first, held))
    assert np.array_equal(partition.rows_of(server, first, last), partition.rows_of(server, 0, held)[first:last])


def test_row_numbers_beyond_32_bits_keep_their_place() -> None:
    partition = RoundRobinPartition(total_rows=2**40, servers=3)
    row = np.array([2**40 - 1], dtype=np.int64)
    server, offset = int(partition.owner(row)[0]), int(partition.offset(row)[0])
    assert partition.rows_of(server, offset, offset + 1).tolist() == row.tolist()
    assert partition.rows_on(server) == offset + 1


@pytest.mark.parametrize(
    ("table_rows", "expected"), [((), [0]), ((3, 0, 5), [0, 3, 3, 8]), ((2**31, 2**31), [0, 2**31, 2**32])]
)
def test_table_offsets_are_the_first_rows_and_the_total(table_rows: tuple[int, ...], expected: list[int]) -> None:
    offsets = table_offsets(table_rows)
    assert offsets.dtype == np.int64
    assert offsets.tolist() == expected
