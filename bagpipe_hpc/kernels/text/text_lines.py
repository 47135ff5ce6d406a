"""Counts the ends of lines of a text, natively; `data_prep.inputs.text_blocks.count_line_ends` is the definition."""

import ctypes
from functools import cache

from bagpipe_hpc.kernels import shared_library


def count_line_ends(text: bytes) -> int:
    """Ends of line, LF, CRLF or CR, in a text."""
    ends: int = _library().count_line_ends(text, len(text))
    return ends


@cache
def _library() -> ctypes.CDLL:
    library = shared_library.load("text_lines")
    library.count_line_ends.restype = ctypes.c_int64
    library.count_line_ends.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    return library
