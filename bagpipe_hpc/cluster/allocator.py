"""Keeps glibc from returning a batch's large buffers to the system, to be faulted in again at the next batch.

By default glibc maps every large buffer afresh, and a training step allocates many: at 16,384 samples a batch, a third
of a step went into page faults.
"""

import ctypes
import os

_SETTINGS = {
    # variable that sets the same thing: (parameter of mallopt(3), value)
    "MALLOC_ARENA_MAX": (-8, 1),  # one heap for all threads: what one has freed another can take
    "MALLOC_MMAP_MAX_": (-4, 0),  # no mappings of their own for large buffers
    "MALLOC_TRIM_THRESHOLD_": (-1, -1),  # never shrink the heap
    "MALLOC_TOP_PAD_": (-2, 64 << 20),  # grow it in large steps
}


def keep_freed_memory() -> None:
    """Tell glibc's malloc; settings that the environment makes stay, and other libraries' malloc is left alone.

    Holds for what is allocated from now on, so it comes first in a process that trains.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for variable, (parameter, value) in _SETTINGS.items():
        if variable not in os.environ:
            mallopt(parameter, value)
