"""Huge pages for rows that processes of a host share: rows are read in no order, so small pages cost a walk each."""

import ctypes
import mmap
from typing import Any

from numpy.typing import NDArray

_LEAST_BYTES = 1 << 24
"""Below this it hardly matters, and a table would take a whole huge page, 2 MiB, for its last bytes."""


def ask_for_huge_pages(memory: NDArray[Any]) -> bool:
    """Ask Linux to keep shared memory in huge pages.

    It does so where the memory's file system has them for who asks (`mount -o remount,huge=advise /dev/shm`) and what
    is in it is not written yet. Every process that reads or writes the memory must ask before it does: each has page
    tables of its own. Contents are the same either way.

    Args:
        memory: a C-contiguous array in such memory.

    Returns:
        Whether Linux took note: not of little memory, nor without this call.
    """
    if memory.nbytes < _LEAST_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    first = -(-memory.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = memory.ctypes.data + memory.nbytes - first
    return bool(advise(first, size, mmap.MADV_HUGEPAGE) == 0)
