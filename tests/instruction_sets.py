"""Native code that has a form for each instruction set, and for results past the caches: tests take them all.

See csrc/instruction_sets.inc and csrc/streaming.h.
"""

from collections.abc import Iterator
from ctypes import c_int64

from bagpipe_hpc.kernels import shared_library

_BEST = 99
"""Beyond the last."""


def each_instruction_set(library: str) -> Iterator[int]:
    """The numbers of those that this processor has, each in use until the next one; at last the best is again."""
    use = shared_library.load(library).use_instruction_set
    try:
        for number in range(use(_BEST)):
            use(number)
            yield number
    finally:
        use(_BEST)


def each_way_to_store(library: str) -> Iterator[str]:
    """Results as small as those of tests are in the caches, then past them; at last the usual ones are again."""
    try:
        for way, size in (("in the caches", 0), ("past the caches", 1)):
            set_stream_bytes(library, size)
            yield way
    finally:
        set_stream_bytes(library, 0)


def set_stream_bytes(library: str, size: int) -> int:
    """Store results past the caches that have more bytes, 0: as usual; returns the size."""
    stream_from = shared_library.load(library).stream_from
    stream_from.restype = c_int64
    in_use: int = stream_from(c_int64(size))
    return in_use
