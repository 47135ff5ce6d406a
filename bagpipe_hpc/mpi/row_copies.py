"""Copies rows between an array in memory and a dense one, with NumPy.

Each row is moved as one item of its size: `put` on such items is two to four times as fast as index assignment to rows
of floats, and `take` needs no buffer in mode `clip`, which is why every index must have been checked.

Legend: `P` rows of the array, `N` rows of one call, `W` numbers of a row.
"""

import numpy as np
from numpy.typing import NDArray


def copy_rows_out(
    rows: NDArray[np.float32], index: NDArray[np.integer], into: NDArray[np.float32]
) -> NDArray[np.float32]:
    """`into[:] = rows[index]`: `rows [P, W]`, `index [N]` below P, `into` C-contiguous `[N, W]`, which is returned."""
    return np.take(rows, index, axis=0, out=into, mode="clip")


def copy_rows_in(rows: NDArray[np.float32], index: NDArray[np.integer], records: NDArray[np.float32]) -> None:
    """`rows[index] = records`: `rows` C-contiguous `[P, W]`, distinct `index [N]` below P, `records [N, W]`."""
    if index.size:
        np.put(_items(rows), index, _items(np.ascontiguousarray(records)), mode="clip")


def _items(rows: NDArray[np.float32]) -> NDArray[np.void]:
    """`[P, W]` floats as `[P]` items of a row each."""
    items: NDArray[np.void] = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0]
    return items
