"""What servers and trainers tell each other beside the barriers of a checkpoint: updated rows, and finished files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.waiting import wait_for_all, wait_until
from bagpipe_hpc.rows.updated import LISTED, Updated, mark

_TAG_WRITTEN = 22
_KINDS: tuple[np.dtype[Any], ...] = (np.dtype(np.uint8), *LISTED)
"""Types of what is told of updated rows: see `Updated`."""
_FIRST_TAG_UPDATED = 32
_SLEEP_S = 5e-3
"""Writing takes long: whoever waits for it leaves the core to others."""


def send_updated(comm: MPI.Comm, group: int, updated: Sequence[Updated], timeout_s: float) -> None:
    """On a trainer: tell every server (the first ranks of `comm`) which of its rows this trainer has written back.

    Args:
        comm: servers and trainers.
        group: number of the group of tables.
        updated: for each server, as `UpdatedRows.by_server` gives them; left alone meanwhile.
        timeout_s: longest wait.

    Raises:
        WaitTimeoutError: a server did not take them in time.
    """
    tags = _tags_updated(group)
    requests = [comm.Isend(told, server, tags[told.dtype]) for server, told in enumerate(updated)]
    wait_for_all(requests, "the servers to take the list of updated rows", timeout_s)


def receive_updated(
    comm: MPI.Comm, group: int, trainers: Sequence[int], size: int, timeout_s: float
) -> NDArray[np.uint8]:
    """On a server: the rows that any trainer has written back.

    Args:
        comm: servers and trainers.
        group: number of the group of tables.
        trainers: their ranks there.
        size: bytes that hold a bit for each row of this server.
        timeout_s: longest wait.

    Returns:
        The bits of all trainers together, `[size]`. Beside them there is room for what one trainer tells.

    Raises:
        WaitTimeoutError: a trainer did not send them in time.
    """
    flags, tags = np.zeros(size, dtype=np.uint8), _tags_updated(group)
    for trainer in trainers:
        mark(flags, _receive_from(comm, trainer, tags, timeout_s))
    return flags


def _tags_updated(group: int) -> dict[np.dtype[Any], int]:
    """By the type of what is told of a group. Each has its own: what is told of the next one can have come as well."""
    return {kind: _FIRST_TAG_UPDATED + group * len(_KINDS) + number for number, kind in enumerate(_KINDS)}


def _receive_from(comm: MPI.Comm, trainer: int, tags: Mapping[np.dtype[Any], int], timeout_s: float) -> Updated:
    """What one trainer tells of a server's rows, a list or bits."""
    status = MPI.Status()

    def has_come() -> bool:
        return any(comm.Iprobe(trainer, tag, status) for tag in tags.values())

    wait_until(has_come, "the trainers to say which rows were updated", timeout_s)
    kind = next(kind for kind, tag in tags.items() if tag == status.Get_tag())
    told: Updated = np.empty(status.Get_count(MPI.BYTE) // kind.itemsize, dtype=kind)
    wait_for_all([comm.Irecv(told, trainer, status.Get_tag())], "updated rows to come", timeout_s)
    return told


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
