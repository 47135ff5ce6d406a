"""Rows are described by the widest numbers that they are made of, and wherever a host's memory has room for them."""

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.row_places import copied_number, rows_at


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("row_bytes", "number"),
    [
        (4, MPI.FLOAT),
        (8, MPI.DOUBLE),
        (12, MPI.FLOAT),
        (16, MPI.C_DOUBLE_COMPLEX),
        (24, MPI.DOUBLE),
        (64, MPI.C_DOUBLE_COMPLEX),
    ],
)
def test_the_widest_number_that_a_row_has_a_whole_number_of_is_copied(row_bytes, number):
    assert copied_number(row_bytes) == number


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_rows_lie_beyond_what_an_int_counts_in_bytes(kind):
    last = 2**31 - 1
    rows = rows_at(np.asarray([last, 5], dtype=kind), 64, MPI.C_DOUBLE_COMPLEX)
    assert rows.Get_extent() == (5 * 64, (last - 5) * 64 + 64)
    assert rows.Get_size() == 2 * 64
    rows.Free()
