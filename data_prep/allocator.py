"""Settings of the C library's allocator for a process that makes and drops arrays of megabytes all the time."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = 32 << 20
"""The most that glibc accepts as threshold of mapping."""


def keep_freed_memory() -> None:
    """Let glibc keep up to 32 MiB of freed memory in each of its arenas, for the rest of the process.

    By default it gives freed megabytes back to the system and faults them in again, page by page, at the next array: in
    a preparation several times as many page faults. Other C libraries are left as they are.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES)
