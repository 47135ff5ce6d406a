"""A call for rows ends each of its parts, and then itself, once: each rank alone."""

from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.transfer import PendingRows, RowTransfer
from bagpipe_hpc.mpi.waiting import wait_until


@pytest.mark.mpi(min_size=3)
def test_a_call_ends_its_parts_and_then_itself_once():
    """It goes on behind one part after the other, from the last on."""
    comm, ended = MPI.COMM_SELF.Dup(), list[str]()
    requests = [comm.Irecv(np.empty(1), 0, tag=part) for part in range(3)]
    parts = [RowTransfer([request], partial(ended.append, f"part {own}")) for own, request in enumerate(requests)]
    rows = PendingRows(parts, partial(ended.append, "all"), "the rows", 30.0)
    comm.Send(np.empty(1), 0, tag=1)
    assert not rows.advance()
    assert not rows.is_complete
    assert rows.awaited() == [[requests[2]]]
    assert ended == []
    comm.Send(np.empty(1), 0, tag=2)
    wait_until(lambda: rows.advance() or bool(ended), "two parts", 30.0)
    assert rows.awaited() == [[requests[0]]]
    assert ended == ["part 2", "part 1"]
    comm.Send(np.empty(1), 0, tag=0)
    wait_until(rows.advance, "the rows", 30.0)
    assert rows.is_complete
    assert rows.awaited() == []
    assert rows.advance()
    assert ended == ["part 2", "part 1", "part 0", "all"]
    comm.Free()


@pytest.mark.mpi(min_size=3)
def test_a_call_without_parts_is_complete_when_it_is_asked():
    ended = list[str]()
    rows = PendingRows([], partial(ended.append, "all"), "the rows", 30.0)
    assert not rows.is_complete
    assert rows.awaited() == []
    assert rows.advance()
    assert ended == ["all"]
