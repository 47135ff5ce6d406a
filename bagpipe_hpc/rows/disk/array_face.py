"""Rows on disk with the interface of an array `[rows, W]`, for code that fills and saves them piece by piece."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.disk.block_file import Int64s
from bagpipe_hpc.rows.disk.store import DiskStore, wait_for

_ROWS_AT_ONCE = 1 << 16


class DiskRows:
    """Some rows of a store at even distances, with some of their columns: what a slice of an array would be.

    Setting waits for the disk. Rows may be chosen by a slice or by an array of their numbers.

    Args:
        store: the rows.
        rows: positions in the store; all rows if left out.
        columns: in their records; all if left out.
    """

    def __init__(self, store: DiskStore, rows: range | None = None, columns: range | None = None) -> None:
        self._store = store
        self._rows = range(store.shape[0]) if rows is None else rows
        self._columns = range(store.width) if columns is None else columns
        self.shape = len(self._rows), len(self._columns)
        self.ndim = 2
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice | tuple[slice, slice]) -> "DiskRows":
        """Fewer rows, or columns; nothing is read."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return DiskRows(self._store, self._rows[rows], self._columns[columns])

    def __setitem__(self, key: slice | tuple[slice | Int64s, slice], values: Any) -> None:
        """Set rows, or some of their columns, to values of their shape or of one that broadcasts to it."""
        chosen, columns = key if isinstance(key, tuple) else (key, slice(None))
        of_all = self._columns[columns]
        rows: range | Int64s
        rows = self._rows[chosen] if isinstance(chosen, slice) else self._rows.start + chosen * self._rows.step
        if not of_all:
            return
        given = np.broadcast_to(np.asarray(values, dtype=np.float32), (len(rows), len(of_all)))
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            piece = slice(first, first + _ROWS_AT_ONCE)
            places = np.asarray(rows[piece], dtype=np.int64)
            wait_for(self._store.set_columns(places, of_all.start, of_all.stop, given[piece]))


class SnapshotRows:
    """Rows of a store as they were when its snapshot began: `rows[piece]` reads some, each row once.

    Args:
        store: the rows.
        columns: how many of a record are wanted, the first ones.
        positions: which rows, int64 `[n]`; None for all.
    """

    def __init__(self, store: DiskStore, columns: int, positions: Int64s | None) -> None:
        self._store = store
        self._columns = columns
        self._positions = positions
        self.shape = (store.shape[0] if positions is None else len(positions)), columns
        self.ndim = 2
        self.dtype = np.dtype(np.float32)

    def __getitem__(self, piece: slice | Int64s) -> NDArray[np.float32]:
        if self._positions is not None:
            places = self._positions[piece]
        elif isinstance(piece, slice):
            places = np.arange(*piece.indices(self.shape[0]), dtype=np.int64)
        else:
            places = piece
        return self._store.read_snapshot(places)[:, : self._columns]
