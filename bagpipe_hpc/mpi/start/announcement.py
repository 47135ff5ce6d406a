"""How the ranks wait for the oracle's preparations, which may take as long as the data is large.

The oracle sends a heartbeat every few seconds, then the outcome; so a wait without limit still notices a stopped
oracle.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from mpi4py import MPI

from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.mpi.communicators import ORACLE_RANK
from bagpipe_hpc.mpi.heartbeat import HeartbeatSender
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import LATE_SHARE, wait_for_all, wait_until

_TAG_READY = 12
_TAG_FAILED = 13

_Outcome = TypeVar("_Outcome")


class PreparationError(BagpipeError):
    """The oracle's preparations failed; the message is that of the oracle's error."""


def announce(comm: MPI.Comm, prepare: Callable[[], _Outcome], timeout_s: float) -> _Outcome:
    """On the oracle: run `prepare` and send its outcome (picklable) to all ranks.

    Args:
        comm: all ranks.
        prepare: may take as long as it likes.
        timeout_s: longest time without a heartbeat, as the others bear it.

    Raises:
        BagpipeError: whatever `prepare` raises; the other ranks are told.
        WaitTimeoutError: a rank did not take the outcome in time.
    """
    others = [rank for rank in range(comm.Get_size()) if rank != ORACLE_RANK]
    try:
        with HeartbeatSender(comm, others, timeout_s) as heartbeats:
            outcome = prepare()
    except BagpipeError as error:
        _send_all(comm, others, str(error), _TAG_FAILED, timeout_s)
        raise
    _send_all(comm, others, outcome, _TAG_READY, timeout_s)
    heartbeats.wait_taken()
    return outcome


def _send_all(comm: MPI.Comm, others: list[int], message: object, tag: int, timeout_s: float) -> None:
    """Send to all at once: one that is stopped does not keep the others waiting for it."""
    sent = [comm.isend(message, dest=rank, tag=tag) for rank in others]
    wait_for_all(sent, "all ranks to hear how the run is prepared", timeout_s)


def await_announcement(comm: MPI.Comm, timeout_s: float) -> Any:
    """On all other ranks: what the oracle's `prepare` returned.

    Args:
        comm: as given to `announce`.
        timeout_s: longest time without a heartbeat.

    Raises:
        PreparationError: the preparations failed.
        WaitTimeoutError: the oracle fell silent.
    """
    while True:
        status = MPI.Status()
        arrived = partial(comm.Iprobe, source=ORACLE_RANK, tag=MPI.ANY_TAG, status=status)
        wait_until(arrived, "the oracle to prepare the run", timeout_s, late_share=LATE_SHARE)
        with TimeLimit("the oracle's word on how the run is prepared", timeout_s):
            outcome = comm.recv(source=ORACLE_RANK, tag=status.Get_tag())
        if status.Get_tag() == _TAG_FAILED:
            raise PreparationError(outcome)
        if status.Get_tag() == _TAG_READY:
            return outcome
