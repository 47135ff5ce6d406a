"""The job as a whole: how many ranks it has, how it is ended by force, and what is left of it then."""

import contextlib
import sys
import time
from pathlib import Path
from typing import NoReturn

from mpi4py import MPI

from bagpipe_hpc.terminal import ERASE_LINE, columns, printable

_MESSAGE_HEAD_START_S = 0.5
"""Launchers drop what a rank wrote just before it aborted the job."""
_MAPPED = Path("/proc/self/maps")
_SHARED_FILES = ("/dev/shm/mpich_shm_", "/dev/shm/sm_segment.")
"""How their names begin: MPICH's, and those of Open MPI 5."""


def world_size() -> int:
    """Number of ranks of the job."""
    return MPI.COMM_WORLD.Get_size()


def world_rank() -> int:
    """This rank's number in the job."""
    return MPI.COMM_WORLD.Get_rank()


def remove_shared_files() -> None:
    """Remove the names of the files by which MPI's ranks of a host found the memory that they share.

    They use it on without a name. Of a job that is ended by force MPICH would leave some 5 MB behind each time. Of a
    process that no launcher has started Open MPI 5 leaves the file, even where it ends in order. Call it when all ranks
    have started MPI, or when the job ends.
    """
    with contextlib.suppress(OSError):
        # Files of any name may be mapped.
        lines = _MAPPED.read_text(encoding="utf-8", errors="replace").splitlines()
        names = {line[line.index(start) :] for line in lines for start in _SHARED_FILES if start in line}
        for name in names:
            if not name.endswith(" (deleted)"):
                Path(name).unlink(missing_ok=True)


def abort_job(message: str, exit_code: int) -> NoReturn:
    """Write a message to stderr, in one piece, and end all ranks; does not return."""
    sys.stderr.write(f"{ERASE_LINE if columns() else ''}{printable(message.rstrip())}\n")
    sys.stderr.flush()
    time.sleep(_MESSAGE_HEAD_START_S)
    MPI.COMM_WORLD.Abort(exit_code)
