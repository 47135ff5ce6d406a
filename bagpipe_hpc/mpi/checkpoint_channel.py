"""What servers and trainers tell each other beside the barriers of a checkpoint: updated rows, and finished files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.waiting import wait_for_all, wait_until

_TAG_UPDATED = 21
_TAG_WRITTEN = 22
_SLEEP_S = 5e-3
"""Writing takes long: whoever waits for it leaves the core to others."""


def send_updated(comm: MPI.Comm, flags: Sequence[NDArray[np.uint8]], timeout_s: float) -> None:
    """On a trainer: tell every server (the first ranks of `comm`) which of its rows this trainer has written back.

    Args:
        comm: servers and trainers.
        flags: a bit for each row of each server, as `UpdatedRows.flags` gives them; left alone meanwhile.
        timeout_s: longest wait.

    Raises:
        WaitTimeoutError: a server did not take them in time.
    """
    requests = [comm.Isend(bits, server, _TAG_UPDATED) for server, bits in enumerate(flags)]
    wait_for_all(requests, "the servers to take the list of updated rows", timeout_s)


def receive_updated(comm: MPI.Comm, trainers: Sequence[int], size: int, timeout_s: float) -> NDArray[np.uint8]:
    """On a server: the rows that any trainer has written back.

    Args:
        comm: servers and trainers.
        trainers: their ranks there.
        size: bytes that hold a bit for each row of this server.
        timeout_s: longest wait.

    Returns:
        The bits of all trainers together, `[size]`.

    Raises:
        WaitTimeoutError: a trainer did not send them in time.
    """
    flags = np.empty((len(trainers), size), dtype=np.uint8)
    requests = [comm.Irecv(flags[number], trainer, _TAG_UPDATED) for number, trainer in enumerate(trainers)]
    wait_for_all(requests, "the trainers to say which rows were updated", timeout_s)
    return np.asarray(np.bitwise_or.reduce(flags, axis=0))


def report_written(comm: MPI.Comm, leader: int, files: object, timeout_s: float) -> None:
    """On a server: tell rank `leader` that this server's files (picklable) are on the disk.

    Raises:
        WaitTimeoutError: it did not take the message in time.
    """
    wait_for_all([comm.isend(files, leader, _TAG_WRITTEN)], "trainer 0 to hear of a file of the checkpoint", timeout_s)


def await_written(comm: MPI.Comm, servers: Sequence[int], timeout_s: float) -> list[Any]:
    """On the rank that commits: the files of all servers, in their order.

    Raises:
        WaitTimeoutError: one was not written in time.
    """
    files = []
    for server in servers:

        def has_come(server: int = server) -> bool:
            return comm.Iprobe(server, _TAG_WRITTEN)

        what = f"server {server} to write its part of the checkpoint"
        wait_until(has_come, what, timeout_s, longest_sleep_s=_SLEEP_S)
        files.append(comm.recv(source=server, tag=_TAG_WRITTEN))
    return files
