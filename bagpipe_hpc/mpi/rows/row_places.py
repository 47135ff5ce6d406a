"""Describes to MPI where some rows of a window are, in the way that takes the least processor time."""

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray


def copied_number(row_bytes: int) -> MPI.Datatype:
    """The largest type of which a row is a whole number: MPI copies rows that are not contiguous number by number.

    Only for calls that copy bits; a row is of float32 numbers.
    """
    # Not bytes, nor single numbers of 8: both took longer (benchmarks/notes/2026-11-23-one-sided-rows.md).
    wide = (MPI.C_DOUBLE_COMPLEX, MPI.DOUBLE)
    return next((number for number in wide if row_bytes % number.Get_size() == 0), MPI.FLOAT)


def rows_at(offsets: NDArray[np.integer], row_bytes: int, number: MPI.Datatype) -> MPI.Datatype:
    """A datatype of the rows at `offsets [N]` of a table; the caller frees it.

    Args:
        offsets: positions of rows, in rows.
        row_bytes: bytes of a row.
        number: of which a row is a whole number.
    """
    # By bytes, since a server may hold more rows than a C int counts. As a list, since mpi4py takes each number by its
    # index, whatever it is given: of an array that is 90 ns a row, more than MPI takes to copy 64 bytes.
    starts = (offsets.astype(np.int64) * row_bytes).tolist()
    return number.Create_hindexed_block(row_bytes // number.Get_size(), starts).Commit()
