"""Ids of a block of samples become global rows of a batch, natively and without the GIL.

Legend: `m` samples that are taken, `F` features.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library


def place(
    ids: NDArray[Any],
    samples: NDArray[np.int64],
    table_rows: NDArray[np.int64],
    first_rows: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> bool:
    """Write `ids[samples] + first_rows` to `rows`.

    Args:
        ids: of a block, int32 or int64 `[n, F]`, contiguous.
        samples: numbers from 0 to below n, int64 `[m]`, contiguous.
        table_rows: ids of each feature's table, int64 `[F]`.
        first_rows: the first global row of each feature's table, int64 `[F]`.
        rows: where global rows go, int64 `[m, F]`, contiguous.

    Returns:
        Whether every id is one of its table; if not, `rows` are of no use.
    """
    is_sound: int = _library().place_look_ups(
        *(ids.ctypes.data, ids.itemsize, samples.ctypes.data, len(samples), ids.shape[1]),
        *(table_rows.ctypes.data, first_rows.ctypes.data, rows.ctypes.data),
    )
    return bool(is_sound)


@cache
def _library() -> ctypes.CDLL:
    library = shared_library.load("look_ups")
    address, number = ctypes.c_void_p, ctypes.c_int64
    library.place_look_ups.restype = number
    library.place_look_ups.argtypes = [address, number, address, number, number, address, address, address]
    return library
