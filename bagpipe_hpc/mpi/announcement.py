"""How the ranks wait for the oracle's preparations, which may take as long as the data is large.

The oracle sends a sign of life every few seconds, then the outcome; so a wait without limit still notices a stopped
oracle.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from mpi4py import MPI

from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.mpi.communicators import ORACLE_RANK
from bagpipe_hpc.mpi.waiting import wait_until

_TAG_ALIVE = 11
_TAG_READY = 12
_TAG_FAILED = 13
_ALIVE_EVERY_S = 2.0

_Outcome = TypeVar("_Outcome")


class PreparationError(BagpipeError):
    """The oracle's preparations failed; the message is that of the oracle's error."""


def announce(comm: MPI.Comm, prepare: Callable[[], _Outcome]) -> _Outcome:
    """On the oracle: run `prepare` and send its outcome (picklable) to all ranks.

    Raises:
        BagpipeError: whatever `prepare` raises; the other ranks are told.
    """
    others = [rank for rank in range(comm.Get_size()) if rank != ORACLE_RANK]
    signs: list[MPI.Request] = []
    try:
        with _signs_of_life(comm, others, signs):
            outcome = prepare()
    except BagpipeError as error:
        _send_all(comm, others, str(error), _TAG_FAILED)
        raise
    _send_all(comm, others, outcome, _TAG_READY)
    MPI.Request.Waitall(signs)  # taken by now: they were sent before the outcome
    return outcome


def _send_all(comm: MPI.Comm, others: list[int], message: object, tag: int) -> None:
    for rank in others:
        comm.send(message, dest=rank, tag=tag)


@contextmanager
def _signs_of_life(comm: MPI.Comm, others: list[int], sent: list[MPI.Request]) -> Iterator[None]:
    """Send one every few seconds while the body runs; leaves the last ones in `sent`, which the caller waits for."""
    finished = threading.Event()

    def show_life() -> None:
        while not finished.wait(_ALIVE_EVERY_S):
            if MPI.Request.Testall(sent):  # a stopped rank takes none: do not wait for it, nor pile them up
                sent[:] = [comm.isend(None, dest=rank, tag=_TAG_ALIVE) for rank in others]

    thread = threading.Thread(target=show_life, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def await_announcement(comm: MPI.Comm, timeout_s: float) -> Any:
    """On all other ranks: what the oracle's `prepare` returned.

    Args:
        comm: as given to `announce`.
        timeout_s: longest time without a sign of life.

    Raises:
        PreparationError: the preparations failed.
        WaitTimeoutError: the oracle fell silent.
    """
    while True:
        status = MPI.Status()
        arrived = partial(comm.Iprobe, source=ORACLE_RANK, tag=MPI.ANY_TAG, status=status)
        wait_until(arrived, "the oracle to prepare the run", timeout_s)
        outcome = comm.recv(source=ORACLE_RANK, tag=status.Get_tag())
        if status.Get_tag() == _TAG_FAILED:
            raise PreparationError(outcome)
        if status.Get_tag() == _TAG_READY:
            return outcome
