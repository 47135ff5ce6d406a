"""Keeps glibc from returning freed memory to the system, to be faulted in again page by page at the next large buffer.

By default glibc maps every large buffer afresh. Two kinds of process make and drop large buffers all the time, and need
different settings:

* A rank that trains (`keep_all_freed_memory`) has buffers of any size, gigabytes among them, and few threads. At 16,384
  samples a batch, a third of a step went into page faults. It keeps everything, in one heap.
* A preparation (`keep_freed_arrays`) has arrays of megabytes in many threads at once, which one heap would let wait for
  each other. Each thread's heap keeps up to 32 MiB; without, there are several times as many page faults.

Both hold for what is allocated from now on, so they come first in a process. Other libraries' malloc is left alone.
"""

import ctypes
import os
from collections.abc import Callable

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -2, -3, -4, -8
"""Parameters of mallopt(3), as malloc.h numbers them."""
_OF_TRAINING = {
    # variable that sets the same thing: (parameter, value)
    "MALLOC_ARENA_MAX": (_ARENA_MAX, 1),  # one heap for all threads: what one has freed another can take
    "MALLOC_MMAP_MAX_": (_MMAP_MAX, 0),  # no mappings of their own for large buffers
    "MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, -1),  # never shrink the heap
    "MALLOC_TOP_PAD_": (_TOP_PAD, 64 << 20),  # grow it in large steps
}
_MOST_MAPPED_BYTES = 32 << 20
"""The largest mmap threshold that glibc accepts."""


def keep_all_freed_memory() -> None:
    """Keep whatever is freed, in one heap; settings that the environment makes stay."""
    if mallopt := _mallopt():
        for variable, (parameter, value) in _OF_TRAINING.items():
            if variable not in os.environ:
                mallopt(parameter, value)


def keep_freed_arrays() -> None:
    """Keep up to 32 MiB of freed memory in each thread's heap."""
    if mallopt := _mallopt():
        mallopt(_MMAP_THRESHOLD, _MOST_MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, _MOST_MAPPED_BYTES)


def _mallopt() -> Callable[[int, int], int] | None:
    """What sets a parameter of glibc's malloc; None in other C libraries."""
    return getattr(ctypes.CDLL(None), "mallopt", None)
