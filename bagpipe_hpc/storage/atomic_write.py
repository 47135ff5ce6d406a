"""Files that are either complete or absent: write aside, fsync, rename. Standard library only."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

_MOST_NAME_BYTES = 200
"""Of a file's name in that of the temporary one, which may have 255 on most file systems."""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a temporary sibling of `path` to write to; it takes the name `path` when the block ends without an error.

    The contents are on the disk before the rename, and the rename before this returns, so a reader or a machine that
    restarts sees the old file or the whole new one. The temporary name holds this process's number: two writers
    of one host never share one. A process that is killed leaves a `.NAME.PID.partial` file; `remove_partial_files`
    clears those.

    Args:
        path: final name; its folder exists, an earlier file is replaced.

    Yields:
        The temporary path, which the caller must create and close inside the block.

    Raises:
        FileNotFoundError: the block wrote nothing to the temporary path.
        OSError: the file cannot be written; the error names `path`.
    """
    with _written_aside(path) as partial:
        yield partial
        fsync(partial)
    fsync(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Give a file another text: readers see the old one or the new one; after a crash of the machine, maybe neither.

    It does not wait for the disk, so it suits files that are soon written again.

    Raises:
        OSError: it cannot be written; the error names `path`.
    """
    with _written_aside(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def _written_aside(path: Path) -> Iterator[Path]:
    """A temporary sibling of `path`, which takes its name when the block ends without an error.

    An error in writing names no file, and one in opening names the temporary file: both are made to name `path`.
    """
    encoded, name = os.fsencode(path.name), path.name
    if len(encoded) > _MOST_NAME_BYTES:
        name = f"{encoded[:_MOST_NAME_BYTES].decode(errors='ignore')}.{crc32(encoded):08x}"
        with suppress(FileNotFoundError):
            path.lstat()  # one that no file may have is an error before anything is written
    partial = path.with_name(f".{name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(partial)):
            error.filename = str(path)
            del error.filename2  # None would be printed as a second name
        raise
    finally:
        partial.unlink(missing_ok=True)


def remove_partial_files(directory: Path) -> None:
    """Remove what killed writers left in a folder that the caller alone writes to."""
    for partial in directory.glob(".*.partial"):
        if partial.is_symlink() or not partial.is_dir():  # a scratch folder is its maker's
            partial.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's contents as 64 hex digits; reads in blocks, so memory does not grow with the file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_KNOWS_NO_FOLDERS = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)
"""What some network and user-space file systems answer to an fsync of a folder."""


def fsync(path: Path) -> None:
    """Force a file's contents, or a folder's names where its file system can, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _KNOWS_NO_FOLDERS or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
