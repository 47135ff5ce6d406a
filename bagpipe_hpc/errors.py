"""Exceptions whose message names what is wrong and how to cure it.

Every error that a user can cause derives from `BagpipeError`; the command line prints its text alone,
without a traceback. Anything else is a defect and is shown in full.
"""

import errno
import os
import resource
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


class BagpipeError(Exception):
    """Base of all errors that are expected to reach a user."""


class ConfigError(BagpipeError):
    """A configuration file, an override or a combination of settings is wrong."""


class DataError(BagpipeError):
    """Input rows or a shard directory are malformed, damaged, incomplete or do not fit the configuration."""


class NoRowsError(DataError):
    """Inputs that are in order hold no row."""


class CheckpointError(BagpipeError):
    """A checkpoint is missing, damaged, incomplete or does not fit what it is used with."""


class CapacityError(BagpipeError):
    """Something does not fit: the row cache, a server's memory, a disk."""


class ConsistencyError(BagpipeError):
    """What must be equal is not: a row's version and the plan's (`debug.verify_rows`), or trainers' dense weights."""


class PlanError(BagpipeError):
    """A policy decides what the engine cannot carry out, or what would train wrongly."""


class PlanFileError(BagpipeError):
    """Saved plans are missing, damaged, or were made for another run."""


class WaitTimeoutError(BagpipeError):
    """A wait on another rank or thread outlasted its limit; the message names what was waited for."""

    @classmethod
    def after(cls, timeout_s: float, what: str) -> "WaitTimeoutError":
        """The error of a wait for `what` that is over after `timeout_s`."""
        return cls(
            f"waited {timeout_s:.0f} s for {what}: a rank is stopped, or the network is down or far too slow "
            "(train.timeout_s sets the limit)"
        )


class OutputError(BagpipeError):
    """A file of the output folder cannot be written: a disk that is full or read-only, missing permissions."""


class DivergenceError(BagpipeError):
    """The loss, a row, a dense weight or a prediction is NaN or infinite."""


class FileError(BagpipeError):
    """The system refuses a file or a folder, or it is not of the kind that is wanted."""


_CURES = {
    errno.EACCES: "check its permissions, and that every folder above it may be searched (x)",
    errno.EPERM: "check its permissions and its owner",
    errno.EROFS: "name a place on a file system that can be written to",
    errno.ENOSPC: "make room, or name another place",
    errno.EDQUOT: "make room, or name another place",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f), or name another place",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "its links lead in a circle",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "the disk or the file system fails; look into the system's log",
    errno.ENODEV: "its file system maps no files into memory; name another place",
    errno.ESTALE: "the file system was mounted anew; start again",
}
_OTHER_CURE = "check the path"
_KINDS = {
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def refused(error: OSError, path: Path | None = None) -> FileError:
    """What the system says of a file, with its name and a cure; `path` where the error itself names none."""
    name = path or error.filename
    return FileError(f"{name}: {error.strerror or error}; {_CURES.get(error.errno or 0, _OTHER_CURE)}")


@contextmanager
def naming_files() -> Iterator[None]:
    """Turn what the system says of a file that is named into an error for the user.

    Other errors of the system, such as those of connections, name no file and pass.

    Raises:
        FileError: the system refused a file or a folder.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None or error.strerror is None:
            raise
        raise refused(error) from error


def not_text(given: str) -> str | None:
    """Why what was given cannot be used, where it holds bytes that are no text in this locale; None where it does not.

    Such bytes of the command line and of files' names arrive as lone surrogates.

    Returns:
        What is wrong and the cure, to follow the value as Python writes it, which a terminal can show.
    """
    if not any("\ud800" <= letter <= "\udfff" for letter in given):
        return None
    return (
        f"holds bytes that are no text in this locale ({sys.getfilesystemencoding()}); use one of UTF-8, such as "
        "LC_ALL=C.UTF-8, and names that are UTF-8"
    )


_OF_THREADS = ("can't start new thread", "Failed to launch worker thread")
"""What Python and Arrow say where the system starts no further thread."""
_OF_MEMORY = ("failed to map segment", "can't allocate memory", "Cannot allocate memory")
"""What the loader of libraries, torch and the system say where they get no memory."""


def met_limit(error: BaseException) -> BagpipeError | None:
    """What a user can do about a limit of this process that another error tells of; None where it tells of none.

    Such a limit is that of its threads, of its memory, or of the letters that names may have in its locale. Without a
    limit of its memory, whatever asks for too much is a defect, and is shown in full.
    """
    text = str(error)
    known = sys.getfilesystemencoding()
    if isinstance(error, UnicodeEncodeError) and "utf-8" not in (known, error.encoding):
        told = f"this locale ({known}) lacks letters of this name; use one of UTF-8, such as LC_ALL=C.UTF-8"
        return FileError(f"{error.object!r}: {told}")
    most_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    may_have = f"this process may have {most_bytes / 1e9:.1f} GB (ulimit -v)"
    is_limited = most_bytes != resource.RLIM_INFINITY
    if any(told in text for told in _OF_THREADS):
        number, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        most = "" if number == resource.RLIM_INFINITY else f" is {number}"
        cure = f"ulimit -u{most}, of all processes and threads of a user, and a control group has its pids.max"
        cure = f"{cure}; {may_have}" if is_limited else cure
        return CapacityError(f"no more threads ({text}): {cure}; raise the limit that is met")
    is_for_memory = isinstance(error, MemoryError) or any(told in text for told in _OF_MEMORY)
    if not is_limited or not is_for_memory:
        return None
    told = (text or "a piece was refused").partition("\n")[0]
    return CapacityError(f"no more memory ({told}): {may_have}; raise that limit")


def lacking_threads() -> BagpipeError | None:
    """What a user can do about a system that starts no further thread of this process; None where it does."""
    try:
        Thread(target=int).start()
    except RuntimeError as error:
        return met_limit(error)
    return None


def read_small(path: Path, most_bytes: int) -> str:
    """The text of a file that should be small; a pipe will do, a device will not.

    Args:
        path: the file.
        most_bytes: no more is read.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is no UTF-8 text.
        FileError: it is no file, or has more bytes.
    """
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind in _KINDS:
        raise FileError(f"{path}: is {_KINDS[kind]}; name a file")
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise FileError(f"{path}: has more than {most_bytes >> 10} KiB, which none of its kind has; name another file")
    return content.decode("utf-8")


def _holds_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1) in (b"", b"{")


def require_appendable(path: Path) -> None:
    """Make the folder of a file that lines of JSON are to be appended to, and the file, before they are there.

    Raises:
        FileError: the system refuses it, or it holds something else.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and not _holds_json(path):
            raise FileError(f"{path}: is there and holds no lines of JSON, which are appended to it; use another name")
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666))
    except OSError as error:
        raise refused(error, path) from error
