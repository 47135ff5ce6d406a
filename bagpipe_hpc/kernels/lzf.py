"""Compresses and reads chunks as HDF5's shuffle filter and h5py's LZF filter do, natively and without the GIL."""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library


def shuffle(chunk: NDArray[Any]) -> NDArray[np.uint8]:
    """The first bytes of all elements, then the second bytes and so on; uint8 `[bytes of the chunk]`."""
    shuffled = np.empty(chunk.nbytes, dtype=np.uint8)
    _library().shuffle_bytes(chunk.ctypes.data, chunk.size, chunk.itemsize, shuffled.ctypes.data)
    return shuffled


def compress(chunk: NDArray[Any]) -> NDArray[np.uint8] | None:
    """The chunk's bytes as LZF, or None if that takes as many bytes or more.

    The same bytes always give the same result, which is about as small as that of h5py's filter.

    Args:
        chunk: any array of less than 2 ** 32 bytes, contiguous.
    """
    packed = np.empty(max(0, chunk.nbytes - 1), dtype=np.uint8)
    size: int = _library().compress_lzf(chunk.ctypes.data, chunk.nbytes, packed.ctypes.data, len(packed))
    return packed[:size] if size else None


def unshuffle(shuffled: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The elements, `[bytes / bytes of one]`, whose bytes `shuffle` took apart.

    Args:
        shuffled: bytes of whole elements, contiguous.
        dtype: of the elements.
    """
    values = np.empty(shuffled.size // dtype.itemsize, dtype=dtype)
    _library().unshuffle_bytes(shuffled.ctypes.data, values.size, dtype.itemsize, values.ctypes.data)
    return values


def decompress(packed: NDArray[np.uint8], size: int) -> NDArray[np.uint8] | None:
    """The bytes that LZF data stand for, uint8 `[size]`, or None where they are not LZF of so many bytes.

    Args:
        packed: any bytes, contiguous.
        size: how many bytes they stand for.
    """
    text = np.empty(size, dtype=np.uint8)
    is_sound: int = _library().decompress_lzf(packed.ctypes.data, packed.size, text.ctypes.data, size)
    return text if is_sound else None


@cache
def _library() -> ctypes.CDLL:
    library = shared_library.load("lzf")
    address, number = ctypes.c_void_p, ctypes.c_int64
    library.shuffle_bytes.restype = None
    library.shuffle_bytes.argtypes = [address, number, number, address]
    library.unshuffle_bytes.restype = None
    library.unshuffle_bytes.argtypes = [address, number, number, address]
    library.decompress_lzf.restype = number
    library.decompress_lzf.argtypes = [address, number, address, number]
    library.compress_lzf.restype = number
    library.compress_lzf.argtypes = [address, number, address, number]
    return library
