"""Gathers rows of an array into a dense one, scatters them back, adds to them: what servers do with every row.

Legend: `P` rows of the array, `N` rows of one call, `W` float32 numbers of a row.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.additions import distinct_rounds

Rows = NDArray[np.float32]
Places = NDArray[np.integer[Any]]


class RowCopies(Protocol):
    """Copies rows in both directions, and adds to them. Nobody else may touch the rows meanwhile.

    Raises:
        IndexError: a place is not one of 0 .. P - 1. Nothing is changed.
    """

    def gather(self, rows: Rows, places: Places, into: Rows) -> None:
        """`into[:] = rows[places]`: `rows [P, W]` and `into [N, W]` C-contiguous, integers `places [N]`."""

    def scatter(self, rows: Rows, places: Places, records: Rows) -> None:
        """`rows[places] = records`: `rows [P, W]` and `records [N, W]` C-contiguous, distinct integers `places [N]`."""

    def add(self, rows: Rows, places: Places, records: Rows) -> None:
        """`rows[places] += records`, as for `scatter`, but a place may come several times: it gets each, in order."""


class NumpyRowCopies:
    """`RowCopies` with NumPy.

    Each row is moved as one item of its size: `put` of such items takes a half to a quarter of the time of index
    assignment to rows of floats. `take` and `put` need no buffer in mode `clip`.
    """

    def gather(self, rows: Rows, places: Places, into: Rows) -> None:
        """Copy rows into `into`, a row as one item."""
        check_places(places, len(rows))
        np.take(rows, places, axis=0, out=into, mode="clip")

    def scatter(self, rows: Rows, places: Places, records: Rows) -> None:
        """Copy `records` to their places, a record as one item."""
        check_places(places, len(rows))
        if places.size:
            np.put(as_items(rows), places, as_items(records), mode="clip")

    def add(self, rows: Rows, places: Places, records: Rows) -> None:
        """Add `records` to their places, in rounds of distinct ones."""
        for chosen in distinct_rounds(places):
            here, added = (places, records) if chosen is None else (places[chosen], records[chosen])
            sums = np.empty_like(added)
            self.gather(rows, here, sums)
            sums += added
            self.scatter(rows, here, sums)


def check_places(places: Places, rows: int) -> None:
    """Check that all places are below `rows`: other memory would be read or overwritten silently.

    Raises:
        IndexError: one is not.
    """
    if places.size and not 0 <= int(places.min()) <= int(places.max()) < rows:
        raise IndexError(f"places reach from {places.min()} to {places.max()}: must lie in 0 to {rows - 1}")


def as_items(rows: NDArray[np.float32]) -> NDArray[np.void]:
    """`[P, W]` floats as `[P]` items of a row each."""
    items: NDArray[np.void] = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0]
    return items
