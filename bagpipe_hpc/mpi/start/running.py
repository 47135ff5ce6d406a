"""MPI from its start to its end: both wait for every rank, so both have a limit.

mpi4py starts MPI when it is imported and ends it when the interpreter exits, and lets no other thread run meanwhile: a
rank that is stopped just before would keep the others waiting for good, without a word. So both are called from here,
through ctypes, which does let others run.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import mpi4py

mpi4py.rc.initialize = False

from mpi4py import MPI  # noqa: E402 - importing it would start MPI

from bagpipe_hpc.cluster.host_memory import free_shared_bytes  # noqa: E402
from bagpipe_hpc.cluster.shared_memory_warning import shared_memory_warning  # noqa: E402
from bagpipe_hpc.errors import ConfigError, WaitTimeoutError  # noqa: E402
from bagpipe_hpc.exit_codes import EXIT_FAILED  # noqa: E402
from bagpipe_hpc.mpi.start.roll_call import call_roll  # noqa: E402
from bagpipe_hpc.mpi.start.world import abort_job, remove_shared_files, world_size  # noqa: E402
from bagpipe_hpc.mpi.time_limit import TimeLimit  # noqa: E402
from bagpipe_hpc.terminal import printable  # noqa: E402


@contextmanager
def mpi_running(start_timeout_s: float, timeout_s: float) -> Iterator[None]:
    """Start MPI, and end it after the body, unless it runs already. Collective over: all ranks of the job.

    Import this file before any other that imports mpi4py. After an error in the body of a job of several ranks MPI is
    not ended: the others may never come.

    Args:
        start_timeout_s: longest wait for the other ranks at the start; after it the job is ended.
        timeout_s: longest wait for them at the end.

    Raises:
        ConfigError: MPI has ended already.
    """
    if MPI.Is_finalized():
        raise ConfigError("MPI starts once in a process, and has ended with its first run; start a program for each")
    is_ours = not MPI.Is_initialized()
    if is_ours:
        sys.stderr.write(shared_memory_warning(free_shared_bytes()))
        given = ctypes.c_int()
        with TimeLimit("all ranks to start MPI", start_timeout_s, _exit_at_once):
            _library().MPI_Init_thread(None, None, ctypes.c_int(MPI.THREAD_MULTIPLE), ctypes.byref(given))
    has_failed = True
    try:
        yield
        has_failed = False
    finally:
        if is_ours and (world_size() == 1 or not has_failed):
            _end(timeout_s)


def _end(timeout_s: float) -> None:
    """End MPI once all ranks have come."""
    try:
        call_roll(MPI.COMM_WORLD, "having finished", timeout_s)
    except WaitTimeoutError as error:
        abort_job(f"bagpipe: {error}", EXIT_FAILED)
    remove_shared_files()
    with TimeLimit("all ranks to end MPI", timeout_s, _exit_at_once):
        _library().MPI_Finalize()


def _library() -> ctypes.CDLL:
    """The MPI that mpi4py is linked to: looking a name up in a library looks in those that it needs, too."""
    return ctypes.CDLL(MPI.__file__)


def _exit_at_once(message: str, exit_code: int) -> None:
    """End this process, and with it the job: before MPI has started and while it ends there is no `MPI_Abort`."""
    sys.stderr.write(f"{printable(message)}\n")
    sys.stderr.flush()
    remove_shared_files()
    os._exit(exit_code)
