"""What is said of an output that cannot be written: the file, the reason, the cure. Standard library only."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bagpipe_hpc.errors import BagpipeError, CapacityError, ConfigError, OutputError

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


def require_writable(key: str, value: str, folder: Path) -> None:
    """See that a folder can be written, or made where it is not there.

    Args:
        key: what names it, for messages.
        value: what that says.
        folder: the folder.

    Raises:
        ConfigError: it cannot.
    """
    nearest = folder
    try:
        if lost := lost_link(folder.absolute()):
            raise ConfigError(f"{key} = {value!r} cannot be written: {lost}; make that folder, or choose another place")
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=nearest):  # without a name where the system can; permissions do not say it all
            pass
    except (OSError, ValueError) as error:  # also a name that is too long, or has a NUL
        why = f"{nearest}: {error.strerror}" if isinstance(error, OSError) else error  # it names the file of the trial
        raise ConfigError(
            f"{key} = {value!r} cannot be written: {why}; choose another place, or change its permissions"
        ) from error


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
