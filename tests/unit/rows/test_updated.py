"""Rows that were written back are found again, each on its server at its position."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.updated import UpdatedRows, flag_bytes, flagged


@given(total=st.integers(1, 70), servers=st.integers(1, 5), data=st.data())
def test_every_row_is_found_where_it_lies(total: int, servers: int, data: st.DataObject) -> None:
    partition = RoundRobinPartition(total, servers)
    updated = UpdatedRows(partition)
    calls = data.draw(st.lists(st.lists(st.integers(0, total - 1)), max_size=3))
    for rows in calls:
        updated.add(np.array(rows, dtype=np.int64))
    for server in range(servers):
        held = partition.rows_on(server)
        flags = updated.flags(server)
        assert flags.shape == (flag_bytes(held),)
        expected = sorted({row // servers for rows in calls for row in rows if row % servers == server})
        assert flagged(flags, held).tolist() == expected
    updated.clear()
    assert all(flagged(updated.flags(server), partition.rows_on(server)).size == 0 for server in range(servers))
