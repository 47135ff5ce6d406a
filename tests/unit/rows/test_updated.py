"""Rows that were written back are found again, each on its server at its position."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.updated import LISTED, UpdatedRows, flag_bytes, flagged, mark


def positions(updated: UpdatedRows, server: int, held: int) -> list[int]:
    """What a server makes of what it is told."""
    flags = np.zeros(flag_bytes(held), dtype=np.uint8)
    mark(flags, updated.by_server()[server])
    return flagged(flags, held).tolist()


@given(total=st.integers(1, 700), servers=st.integers(1, 5), data=st.data())
def test_every_row_is_found_where_it_lies(total: int, servers: int, data: st.DataObject) -> None:
    """Of so few rows a list of one or two is smaller than the bits, which take less than 100 bytes."""
    partition = RoundRobinPartition(total, servers)
    updated = UpdatedRows(partition)
    calls = data.draw(st.lists(st.lists(st.integers(0, total - 1), max_size=20), max_size=4))
    for rows in calls:
        updated.add(np.array(rows, dtype=np.int64))
        assert updated.nbytes <= sum(flag_bytes(partition.rows_on(server)) for server in range(servers))
    for server in range(servers):
        expected = sorted({row // servers for rows in calls for row in rows if row % servers == server})
        assert positions(updated, server, partition.rows_on(server)) == expected
    updated.clear()
    assert updated.nbytes == 0
    assert not any(positions(updated, server, partition.rows_on(server)) for server in range(servers))


@pytest.mark.parametrize(("noted", "as_bits"), [([7] * 31, False), ([7] * 32, True), (range(0, 1000, 40), False)])
def test_few_rows_are_a_list(noted: Sequence[int], as_bits: bool) -> None:
    """4 bytes a row while that is at most the 125 bytes that hold a bit for each of 1000 rows."""
    updated = UpdatedRows(RoundRobinPartition(1000, 1))
    for row in noted:
        updated.add(np.array([row]))
    assert updated.nbytes == (125 if as_bits else 4 * len(noted))
    assert updated.by_server()[0].dtype == (np.uint8 if as_bits else LISTED[0])
    assert positions(updated, 0, 1000) == sorted(set(noted))


def test_calls_without_rows_leave_nothing_behind() -> None:
    """Between two checkpoints a trainer may make millions of them."""
    updated = UpdatedRows(RoundRobinPartition(1000, 1))
    for _ in range(3):
        updated.add(np.empty(0, dtype=np.int64))
    assert updated._listed == []


def test_rows_beyond_32_bits_are_found() -> None:
    partition = RoundRobinPartition(3 << 32, 2)
    updated = UpdatedRows(partition)
    updated.add(np.array([(3 << 32) - 1, 5, 1 << 33]))
    assert [part.tolist() for part in updated.by_server()] == [[1 << 32], [2, (3 << 31) - 1]]
    assert updated.by_server()[0].dtype == LISTED[1]


def test_to_note_rows_takes_as_long_however_many_were_noted() -> None:
    """A run with few rows a step notes a million times between checkpoints."""
    updated = UpdatedRows(RoundRobinPartition(1 << 33, 8))
    looked_at = 0

    class Places(np.ndarray):
        @property
        def nbytes(self) -> int:
            nonlocal looked_at
            looked_at += 1
            return super().nbytes

    times = 100
    for first in range(times):
        updated.add(np.arange(first, first + 3).view(Places))
    assert updated.nbytes == 3 * times * LISTED[1].itemsize
    assert looked_at <= times
