"""`BlockFile` in C++ (`csrc/block_file.cpp`): many blocks are moved at once, which an SSD needs. Without torch."""

import ctypes
import mmap
import os

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.rows.disk.block_file import Int64s, OpenBlockFile, PlainBlockFile, move_error

_LIBRARY = "block_file"
_THREADS = 32
"""Blocks under way at once: with fewer a disk is not busy, and most disks take no more."""


def block_files(backend: str) -> OpenBlockFile:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return NativeBlockFile if use_native(backend, _LIBRARY) else PlainBlockFile


class NativeBlockFile:
    """A `BlockFile`, which describes the methods; neighbouring blocks are moved by one system call.

    Args:
        descriptor: of the file.
        memory: of the frames.
        block_bytes: size of a block and of a frame.
        name: of the file, for errors.

    Raises:
        CapacityError: the system starts no thread.
        ConfigError: the library was not built or does not load.
    """

    def __init__(self, descriptor: int, memory: mmap.mmap, block_bytes: int, name: str) -> None:
        self._library = library = shared_library.load(_LIBRARY)
        address, number = ctypes.c_void_p, ctypes.c_int64
        library.block_file_open.restype = address
        library.block_file_open.argtypes = [ctypes.c_int32, address, number, ctypes.c_int32]
        library.block_file_submit.restype = number
        library.block_file_submit.argtypes = [address, number, address, address, address]
        library.block_file_done.restype = number
        library.block_file_done.argtypes = [address]
        library.block_file_failure.argtypes = [address, address, address]
        library.block_file_close.argtypes = [address]
        library.block_file_close.restype = None
        self._descriptor = descriptor
        self._name = name
        self._first = ctypes.c_char.from_buffer(memory)  # keeps the memory mapped
        self._file: int | None = library.block_file_open(
            descriptor, ctypes.addressof(self._first), block_bytes, _THREADS
        )
        if not self._file:
            raise CapacityError(f"{name}: the system starts no thread to read it (ulimit -u)")

    def submit(self, frames: Int64s, written: Int64s, read: Int64s) -> int:
        """Start one job of moves."""
        parts = [part.ctypes.data for part in (frames, written, read)]
        job: int = self._library.block_file_submit(self._file, len(frames), *parts)
        return job

    def done(self) -> int:
        """The number of the last job that is done."""
        block, is_write = ctypes.c_int64(), ctypes.c_int32()
        done: int = self._library.block_file_done(self._file)
        failure = self._library.block_file_failure(self._file, ctypes.byref(block), ctypes.byref(is_write))
        if failure:
            raise move_error(self._name, block.value, failure, is_write=bool(is_write.value))
        return done

    def close(self) -> None:
        """Stop moving, and give the file back."""
        file, self._file = self._file, None
        if file:  # otherwise it was closed before
            self._library.block_file_close(file)
            os.close(self._descriptor)
            del self._first
