"""Rows of any width travel as their bits, whatever number they are described by: each rank alone."""

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.one_sided import OneSidedRows
from bagpipe_hpc.mpi.rows.row_places import copied_number
from bagpipe_hpc.mpi.rows.transfer import RowTransfer

ROWS = 61
WIDTHS = {1: 4, 6: 8, 17: 4, 20: 16}
"""Numbers of a record, and bytes of the number that MPI copies it by."""


def end(transfer: RowTransfer) -> None:
    MPI.Request.Waitall(list(transfer.requests))
    transfer.finish()


@pytest.mark.mpi(min_size=3)
def test_rows_keep_their_bits():
    """Any bits, so those that no sum gives are among them, such as signalling NaN."""
    signalling = 0x7F800001
    for width, number_bytes in WIDTHS.items():
        assert copied_number(4 * width).Get_size() == number_bytes
        rng = np.random.default_rng(width)
        table, records = rng.integers(0, 1 << 32, (2, ROWS, width), dtype=np.uint32)
        table[3, 0] = records[5, -1] = signalling
        own = table.copy()
        rows = OneSidedRows(MPI.COMM_SELF, own.view(np.float32), [0])
        wanted = rng.permutation(ROWS).astype(np.int32)[:40]
        got = np.zeros((wanted.size, width), dtype=np.uint32)
        end(rows.start_get(0, wanted, got.view(np.float32)))
        np.testing.assert_array_equal(got, table[wanted])
        end(rows.start_put(0, wanted, records[:40].view(np.float32)))
        table[wanted] = records[:40]
        rows.close()
        np.testing.assert_array_equal(own, table)


@pytest.mark.mpi(min_size=3)
def test_additions_are_of_each_float32():
    """Of each number of a record, whatever number copies go by; a row that comes again gets each of its records."""
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        own, added = rng.standard_normal((2, ROWS, width)).astype(np.float32)
        wanted = np.concatenate((rng.permutation(ROWS)[:-2], [7, 7])).astype(np.int32)
        expected = own.copy()
        np.add.at(expected, wanted, added)
        rows = OneSidedRows(MPI.COMM_SELF, own, [0])
        end(rows.start_add(0, wanted, added))
        rows.close()
        np.testing.assert_array_equal(own, expected)
