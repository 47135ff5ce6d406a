"""Memory for the copy of a server's rows, used again for every checkpoint."""

import mmap
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_NUMBER = np.dtype(np.float32)


class CopyBuffer:
    """One array of float32 numbers at a time, mapped apart from the heap.

    The heap keeps what is freed in it (`cluster/allocator.py`): a copy that was freed there would count as used when
    the next one looks for room. This one is kept until a larger one is wanted, and then its pages go back to the system
    first.

    Args:
        room: bytes that a new copy may take.
    """

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self._mapped: mmap.mmap | None = None

    def take(self, rows: int, columns: int) -> NDArray[np.float32] | None:
        """An array `[rows, columns]` of any contents; those taken before must no longer be in use.

        Returns:
            None where the buffer is too small and there is no room for another.
        """
        size = rows * columns * _NUMBER.itemsize
        if self._mapped is None or size > len(self._mapped):
            self._mapped = None  # gives its pages back
            if size > self._room():
                return None
            try:
                self._mapped = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError:  # the system promises no more memory than it has, or somebody else was faster
                return None
        return np.frombuffer(self._mapped, _NUMBER, rows * columns).reshape(rows, columns)
