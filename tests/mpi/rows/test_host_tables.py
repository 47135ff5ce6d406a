"""Adding to rows of a host's servers takes no memory for good, however often."""

import ctypes

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.host_tables import HostTables

ROWS, WIDTH, ADDS = 61, 8, 300
ENOUGH_BYTES = 16
"""An add may keep so much: what a library takes once, spread over all of them. MPICH 5.0.2 would lose 128."""


class HeapFacts(ctypes.Structure):
    """What mallinfo2(3) tells: ten numbers, of which `uordblks`, the eighth, are the bytes in use."""

    _fields_ = [(name, ctypes.c_size_t) for name in (*"1234567", "uordblks", "fordblks", "keepcost")]


def bytes_in_use() -> int:
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("no mallinfo2: another C library than glibc 2.33 or later")
    mallinfo2.restype = HeapFacts
    return int(mallinfo2().uordblks)


@pytest.mark.mpi(min_size=2)
def test_an_add_keeps_no_memory():
    comm = MPI.COMM_WORLD
    is_server = comm.Get_rank() == 0
    tables = HostTables(comm, ROWS if is_server else 0, 0, ROWS, WIDTH)
    offsets, records = np.arange(0, ROWS, 2), np.ones((-(-ROWS // 2), WIDTH), dtype=np.float32)
    comm.Barrier()
    if is_server:
        tables.rows[:] = 0
    tables.synchronise()
    comm.Barrier()
    for _ in range(ADDS):  # these take what MPI takes once
        tables.add(0, offsets, records)
    before = bytes_in_use()
    for _ in range(ADDS):
        tables.add(0, offsets, records)
    kept = bytes_in_use() - before
    tables.synchronise()
    comm.Barrier()
    tables.synchronise()
    assert (tables.rows[::2] == 2 * ADDS * comm.Get_size()).all()
    assert not tables.rows[1::2].any()
    comm.Barrier()
    tables.close()
    assert kept < ENOUGH_BYTES * ADDS
