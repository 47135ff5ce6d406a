"""Huge pages for rows that processes of a host share: rows are read in random order, and small pages miss the TLB."""

import ctypes
import mmap
from typing import Any

from numpy.typing import NDArray

_LEAST_BYTES = 1 << 24
"""Below this it hardly matters, and a table would take a whole huge page, 2 MiB, for its last bytes."""


def ask_for_huge_pages(memory: NDArray[Any]) -> bool:
    """Ask Linux to keep shared memory in huge pages.

    Linux does so where the memory's file system gives them on request (`mount -o remount,huge=advise /dev/shm`), for
    what is not written yet. Every process that reads or writes the memory must ask before it does so, since each has
    page tables of its own. Contents are the same either way.

    Args:
        memory: a C-contiguous array in such memory.

    Returns:
        Whether Linux accepted the request. It is not made for little memory, nor where the system has no such call.
    """
    if memory.nbytes < _LEAST_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    first = -(-memory.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = memory.ctypes.data + memory.nbytes - first
    return bool(advise(first, size, mmap.MADV_HUGEPAGE) == 0)
