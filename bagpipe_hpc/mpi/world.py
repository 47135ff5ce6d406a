"""The job as a whole: how many ranks it has, and how it is ended by force."""

import sys
import time
from typing import NoReturn

from mpi4py import MPI

_MESSAGE_HEAD_START_S = 0.5
"""Launchers drop what a rank wrote just before it aborted the job."""


def world_size() -> int:
    """Number of ranks of the job."""
    return MPI.COMM_WORLD.Get_size()


def world_rank() -> int:
    """This rank's number in the job."""
    return MPI.COMM_WORLD.Get_rank()


def abort_job(message: str, exit_code: int) -> NoReturn:
    """Write a message to stderr, in one piece, and end all ranks; does not return."""
    sys.stderr.write(message.rstrip("\n") + "\n")
    sys.stderr.flush()
    time.sleep(_MESSAGE_HEAD_START_S)
    MPI.COMM_WORLD.Abort(exit_code)
