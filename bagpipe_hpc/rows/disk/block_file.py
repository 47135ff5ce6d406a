"""A file of blocks that are moved to and from frames of memory in the background, past the page cache.

The file has no name, so the system takes its space back when the process ends, however it ends, and nothing stays
behind that a later start could mistake for its own.

Legend: `n` moves of one call.
"""

import ctypes
import errno
import mmap
import os
import queue
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CapacityError, ConfigError, FileError, refused

NO_BLOCK = -1
SECTOR_BYTES, PAGE_BYTES = 512, 4096
"""Direct reads and writes are multiples of the one or of the other, by disk and file system."""

_MEMORY_FILE_SYSTEMS = (0x01021994, 0x858458F6)
"""The numbers that `statfs` has for tmpfs and ramfs (statfs(2))."""
_STATFS_BYTES = 256
"""More than any system's `struct statfs` has; it begins with the number of the file system's type."""

_CUT_SHORT = -1
_NOT_KNOWN_TO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)

Int64s = NDArray[np.int64]


class BlockFile(Protocol):
    """Moves blocks of a file to and from frames of memory.

    One thread at a time submits; any thread may ask what is done. It must not be used once it is closed.
    """

    def submit(self, frames: Int64s, written: Int64s, read: Int64s) -> int:
        """Start one job of moves, in the order given: each writes a frame to a block, then reads another block into it.

        A block that is written and then read, in the same job or in a later one, comes as it was written. Until the job
        is done nobody may touch its frames, except to read a frame that is written and gets no other block. A frame is
        in one job at a time, and so is a block that is written.

        Args:
            frames: the frames of the moves, int64 `[n]`.
            written: blocks that the frames are written to, int64 `[n]`; `NO_BLOCK` for frames that are not written.
            read: blocks that are read into the frames, int64 `[n]`; `NO_BLOCK` fills a frame with zeros, and the block
                of `written` leaves it as it is.

        Returns:
            The job's number, from 1 on.
        """

    def done(self) -> int:
        """The number of the last job that is done, as are all before it; 0 for none.

        Raises:
            FileError: a block could not be read or written.
        """

    def close(self) -> None:
        """Stop moving, and give the file back."""


OpenBlockFile = Callable[[int, mmap.mmap, int, str], BlockFile]
"""Makes a `BlockFile` from a file's descriptor, which `BlockFile.close` closes, the frames' memory, the bytes of a
block, and a name for errors."""


def open_unnamed(folder: str, *, may_be_memory: bool = False) -> int:
    """Open a file without a name, for direct reads and writes.

    Args:
        folder: where it will take space.
        may_be_memory: whether that may be main memory.

    Returns:
        Its descriptor.

    Raises:
        FileError: the folder is not there, or cannot be written to.
        ConfigError: its file system does not read and write past the page cache, or is main memory.
    """
    if not Path(folder).is_dir():
        raise FileError(f"tables.ssd_path = {folder!r}: is no folder on this host; make it, or name another")
    try:
        descriptor = _open_unnamed(folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ConfigError(
                f"tables.ssd_path = {folder!r}: its file system knows no direct reads and writes (O_DIRECT), without "
                "which the rows would take memory twice; name a folder on a local disk"
            ) from error
        raise refused(error, Path(folder)) from error
    if not may_be_memory and is_in_memory(descriptor):
        os.close(descriptor)
        raise ConfigError(
            f"tables.ssd_path = {folder!r}: lies in a memory file system (tmpfs), so all rows would take memory, "
            "whatever tables.memory_gb says; name a folder on a local disk, or leave both settings out"
        )
    return descriptor


def is_in_memory(descriptor: int) -> bool:
    """Whether a file lies in a file system that keeps it in main memory; behind an overlay that is not detected."""
    about = ctypes.create_string_buffer(_STATFS_BYTES)
    failed = ctypes.CDLL(None).fstatfs(ctypes.c_int(descriptor), about)
    return not failed and ctypes.c_ulong.from_buffer(about).value in _MEMORY_FILE_SYSTEMS


def unit_bytes(descriptor: int) -> int:
    """The least that can be read and written directly of an empty file, in bytes: a block of its disk, or a page.

    Args:
        descriptor: as `open_unnamed` gives it.

    Raises:
        OSError: it cannot be written to at all.
    """
    with mmap.mmap(-1, PAGE_BYTES) as page:
        for size in (SECTOR_BYTES, PAGE_BYTES):
            with memoryview(page)[PAGE_BYTES - size :] as part:  # frames begin at such multiples, too
                try:
                    os.pwritev(descriptor, [part], 0)
                    os.ftruncate(descriptor, 0)
                    return size
                except OSError as error:
                    if error.errno != errno.EINVAL or size == PAGE_BYTES:
                        raise
    raise AssertionError("a page was written or refused")


def reserve(descriptor: int, folder: str, size: int) -> None:
    """Take the space of a file before anything is written to it.

    Args:
        descriptor: of the file.
        folder: where it is.
        size: in bytes.

    Raises:
        CapacityError: the disk has less room.
        ConfigError: the file system cannot reserve space.
        FileError: the system refuses it for another reason.
    """
    try:
        os.posix_fallocate(descriptor, 0, max(size, 1))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise CapacityError(
                f"tables.ssd_path = {folder!r}: the rows of a server take {size / 1e9:.3f} GB there, for which there "
                f"is no room ({error.strerror}); make room, or name a folder on another disk"
            ) from error
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            raise ConfigError(
                f"tables.ssd_path = {folder!r}: its file system takes no space in advance (fallocate), so a full disk "
                "would end the run at any time; name a folder on a local disk"
            ) from error
        raise refused(error, Path(folder)) from error


def disk_unit(folder: str, *, may_be_memory: bool = False) -> int:
    """The least that can be read and written of a file in a folder, in bytes.

    Arguments and errors as for `open_unnamed`.
    """
    descriptor = open_unnamed(folder, may_be_memory=may_be_memory)
    try:
        return unit_bytes(descriptor)
    except OSError as error:
        raise refused(error, Path(folder)) from error
    finally:
        os.close(descriptor)


def _open_unnamed(folder: str) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT
    try:
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in _NOT_KNOWN_TO_TMPFILE:
            raise
    plain, name = tempfile.mkstemp(prefix=".bagpipe-rows-", dir=folder)  # a network file system
    try:
        return os.open(name, flags)
    finally:
        os.close(plain)
        Path(name).unlink()


def move_error(name: str, block: int, code: int, *, is_write: bool) -> FileError:
    """The error for a block that could not be moved.

    Args:
        name: of the file.
        block: its number.
        code: the system's error, or -1 where the file ends too early.
        is_write: which way it went.
    """
    done = "written" if is_write else "read"
    told = "the file ends there" if code == _CUT_SHORT else os.strerror(code)
    return FileError(
        f"{name}: block {block} cannot be {done} ({told}): the disk or its file system fails; look into the system's "
        "log, and go on from the newest checkpoint with another tables.ssd_path"
    )


class PlainBlockFile:
    """`BlockFile` with one thread that moves block after block.

    Args:
        descriptor: of the file.
        memory: of the frames.
        block_bytes: size of a block and of a frame.
        name: of the file, for errors.
    """

    def __init__(self, descriptor: int, memory: mmap.mmap, block_bytes: int, name: str) -> None:
        self._descriptor = descriptor
        self._memory = memoryview(memory)
        self._block_bytes = block_bytes
        self._name = name
        self._jobs: queue.SimpleQueue[list[tuple[int, int, int]] | None] = queue.SimpleQueue()
        self._given = self._done = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="rows on disk", daemon=True)
        self._thread.start()

    def submit(self, frames: Int64s, written: Int64s, read: Int64s) -> int:
        """Start one job of moves."""
        self._given += 1
        self._jobs.put(list(zip(frames.tolist(), written.tolist(), read.tolist(), strict=True)))
        return self._given

    def done(self) -> int:
        """The number of the last job that is done."""
        done = self._done
        if self._failure is not None:
            raise self._failure
        return done

    def close(self) -> None:
        """Stop moving, and give the file back."""
        self._jobs.put(None)
        self._thread.join()
        self._memory.release()
        os.close(self._descriptor)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                for frame, written, read in job:
                    self._move(frame, written, read)
            except BaseException as failure:  # noqa: BLE001 - whatever it is, those who wait have to hear of it
                self._failure = failure
                return
            self._done += 1

    def _move(self, frame: int, written: int, read: int) -> None:
        place = self._memory[frame * self._block_bytes : (frame + 1) * self._block_bytes]
        if written != NO_BLOCK:
            self._transfer(os.pwritev, place, written, is_write=True)
        if read == written != NO_BLOCK:
            return
        if read != NO_BLOCK:
            self._transfer(os.preadv, place, read, is_write=False)
        else:
            place[:] = bytes(self._block_bytes)

    def _transfer(self, call: Callable[..., int], place: memoryview, block: int, *, is_write: bool) -> None:
        first = block * self._block_bytes
        at = 0
        while at < self._block_bytes:  # a signal, or a file system that is nearly full, may cut a call short
            try:
                moved = call(self._descriptor, [place[at:]], first + at)
            except OSError as error:
                raise move_error(self._name, block, error.errno or 0, is_write=is_write) from error
            if not moved:
                raise move_error(self._name, block, _CUT_SHORT, is_write=is_write)
            at += moved


def frame_memory(frames: int, block_bytes: int) -> mmap.mmap:
    """Memory for so many frames, from the start of a page on; a page takes memory once it is written to.

    Raises:
        CapacityError: the system does not give that much.
    """
    size = max(1, frames) * block_bytes
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise CapacityError(
            f"tables.memory_gb: the system does not give {size / 1e9:.3f} GB to a server ({error.strerror}); use less"
        ) from error
    memory.madvise(mmap.MADV_DONTFORK)  # after a fork a page may be copied, and the disk would write to the other copy
    return memory
