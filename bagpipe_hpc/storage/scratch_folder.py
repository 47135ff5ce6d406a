"""Folders in which an output is made, beside its final place.

What killed processes left is removed when the same output is made again. A folder `.NAME.RANDOM.partial` has a lock
(`run_lock`), which tells whether its maker lives, on whatever host.
"""

import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bagpipe_hpc.storage.atomic_write import fsync
from bagpipe_hpc.storage.run_lock import DEAD_AFTER_S, LOCK_NAME, RunLock, is_abandoned

log = logging.getLogger(__name__)

_MOST_NAME_BYTES = 100
"""Most bytes of the final name in the folder's name; a file's name may have 255."""


class ScratchFolder:
    """A folder that `scratch_folder` made.

    Attributes:
        path: of the folder.
        output: what is made in it.
    """

    def __init__(self, path: Path, output: Path) -> None:
        self.path = path
        self.output = output
        self._lock = RunLock(path, log.error, str(output))
        self._lock.take()

    def publish(self, made: Path | None = None) -> None:
        """Give what was made its final name, which must not be taken; it is on the disk when this returns.

        Args:
            made: a file in the folder; None: the folder itself, whose files are on the disk already.

        Raises:
            OSError: the system refuses it.
        """
        if made is None:
            self.release()
        fsync(made or self.path)
        (made or self.path).rename(self.output)
        fsync(self.output.absolute().parent)

    def release(self) -> None:
        """Give the lock back; a second time does nothing."""
        self._lock.release()


@contextmanager
def scratch_folder(output: Path) -> Iterator[ScratchFolder]:
    """Make a folder beside `output`; in the end it is removed with all that is still in it.

    Those that killed processes left for the same `output` are removed first.

    Args:
        output: what is to be made, a file or a folder; the folder that it will lie in is there.

    Raises:
        OSError: the folder cannot be made.
    """
    output = output.absolute()
    start = f".{os.fsencode(output.name)[:_MOST_NAME_BYTES].decode(errors='ignore')}."
    _remove_abandoned(output.parent, start)
    path = output.with_name(f"{start}{secrets.token_hex(4)}.partial")
    path.mkdir()
    try:
        folder = ScratchFolder(path, output)
        try:
            yield folder
        finally:
            folder.release()
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _remove_abandoned(parent: Path, start: str) -> None:
    """Remove the folders whose makers are dead; one that cannot be looked at stays."""
    own = re.compile(re.escape(start) + r"[0-9a-f]{8}\.partial")
    for path in [Path(entry) for entry in os.scandir(parent) if own.fullmatch(entry.name)]:
        with suppress(OSError):
            if is_abandoned(path):
                log.info("removing %s, which a killed process left", path)
                shutil.rmtree(path, ignore_errors=True)
            elif not (path / LOCK_NAME).exists() and time.time() - path.stat().st_mtime > DEAD_AFTER_S:
                path.rmdir()  # its maker died before it took the lock
