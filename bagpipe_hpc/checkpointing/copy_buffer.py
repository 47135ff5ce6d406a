"""Memory for the copy of a server's rows, used again for every checkpoint."""

import mmap
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_NUMBER = np.dtype(np.float32)


class CopyBuffer:
    """One array of float32 numbers at a time, mapped apart from the heap.

    The heap keeps memory that is freed in it (`cluster/allocator.py`): an old copy there would still count as used when
    the next copy looks for room. This buffer is kept until a larger one is wanted; then its pages go back to the system
    before the new one is mapped.

    Args:
        room: returns the bytes that a new copy may take.
    """

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self._mapped: mmap.mmap | None = None

    def take(self, rows: int, columns: int) -> NDArray[np.float32] | None:
        """Give out an array of undefined contents; arrays taken before must no longer be in use.

        Returns:
            float32 `[rows, columns]`; None where the buffer is too small and there is no room for a larger one.
        """
        size = rows * columns * _NUMBER.itemsize
        if self._mapped is None or size > len(self._mapped):
            self._mapped = None  # gives its pages back
            if size > self._room():
                return None
            try:
                self._mapped = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError:  # the system does not overcommit memory, or another process took it first
                return None
        return np.frombuffer(self._mapped, _NUMBER, rows * columns).reshape(rows, columns)
