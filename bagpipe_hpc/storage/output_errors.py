"""What is said of a failed write to the output folder: the file, the reason, the cure. Standard library only."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bagpipe_hpc.errors import BagpipeError, CapacityError, OutputError

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says where the disk, or the user's share of it, is full."""
_LIMITS = {
    errno.EFBIG: ": ulimit -f, or the file system, limits it",
    errno.EMFILE: ": ulimit -n limits them",
    errno.ENAMETOOLONG: ": use a shorter one",
}
"""What is added where the system's own text does not say which limit was reached."""


def lost_link(path: Path) -> str | None:
    """Says which symbolic link in a path is dangling, such as one to a purged scratch folder; None where none is."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            return f"{part} is a link to {part.readlink()}, which is not there"
    return None


def reason(error: OSError) -> str:
    """The system's text for an error in one line, with the limit that was reached; HDF5's errors have several lines."""
    if error.errno == errno.EEXIST and (lost := lost_link(Path(error.filename or ""))):
        return lost
    said = os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
    return said + _LIMITS.get(error.errno or 0, "")


@contextmanager
def writing_to(name: Path, when_full: str, refused: type[BagpipeError]) -> Iterator[None]:
    """Turn what the system says about a command's output into an error that names what the user has named.

    Args:
        name: the file or folder.
        when_full: what to do where the disk is full, to follow `free some space`.
        refused: the error where the system refuses it for another reason.

    Raises:
        CapacityError: the disk is full.
        BagpipeError: `refused`.
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_IS_FULL:
            raise CapacityError(f"{name}: the disk is full; free some space{when_full}") from error
        raise refused(f"{name}: cannot be written ({reason(error)}); check the path and its permissions") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says about a file that cannot be written into an error that names it.

    Raises:
        OutputError: the body could not write; put nothing else inside.
    """
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({reason(error)}); check the free space and the permissions. "
            "Checkpoints are unharmed: train.resume=auto goes on from the newest"
        ) from error
