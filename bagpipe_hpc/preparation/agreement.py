"""All ranks agree before a run starts: what one of them finds wrong refuses the run on every one, and aborts none."""

from collections.abc import Callable
from typing import TypeVar, cast

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.cluster.server_memory import Need
from bagpipe_hpc.errors import BagpipeError, naming_files
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.start.announcement import PreparationError, announce, await_announcement
from bagpipe_hpc.mpi.start.memory_check import require_memory
from bagpipe_hpc.mpi.time_limit import TimeLimit

_Outcome = TypeVar("_Outcome")


class RefusalError(Exception):
    """The run does not start, as every rank knows: nobody has to be aborted."""


class NothingLeftError(RefusalError):
    """The run goes on from a checkpoint after which nothing is left to do."""


def from_oracle(comms: Communicators, prepare: Callable[[], _Outcome], timeout_s: float) -> _Outcome:
    """What `prepare` returns on the oracle, on every rank. Collective over: all ranks.

    Args:
        comms: this rank's communicators.
        prepare: called on the oracle alone, which may take as long as it needs.
        timeout_s: longest silence of the oracle.

    Raises:
        RefusalError: on every rank: `prepare` found an error that the user can cure.
    """
    if comms.role is Role.ORACLE:
        try:
            return announce(comms.world, naming_files()(prepare), timeout_s)
        except BagpipeError as error:
            raise RefusalError(str(error)) from error
    try:
        outcome: _Outcome = await_announcement(comms.world, timeout_s)
    except PreparationError as error:
        raise RefusalError(str(error)) from error
    return outcome


def agree(comms: Communicators, check: Callable[[], _Outcome], timeout_s: float) -> _Outcome:
    """What `check` returns on this rank, once it has passed on all. Collective over: all ranks.

    Args:
        comms: this rank's communicators.
        check: called on every rank.
        timeout_s: longest wait for the slowest rank's check.

    Raises:
        RefusalError: on every rank: `check` found an error on one of them, the first of which is told.
    """
    problem, outcome = None, None
    try:
        with naming_files():
            outcome = check()
    except BagpipeError as error:
        problem = str(error)
    comms.meet("having checked its part", timeout_s)
    with TimeLimit("all ranks to say whether they can run", timeout_s):
        problems = [found for found in comms.world.allgather(problem) if found]
    if problems:
        raise RefusalError(problems[0])
    return cast(_Outcome, outcome)


def agree_on_memory(comms: Communicators, need: Need, timeout_s: float) -> None:
    """See that every host has the memory that its ranks are about to allocate. Collective over: all ranks.

    Args:
        comms: this rank's communicators.
        need: what this rank allocates.
        timeout_s: longest wait for another rank.

    Raises:
        RefusalError: on every rank: a host has less.
    """
    try:
        with TimeLimit("all ranks to say what memory they need", timeout_s):
            require_memory(comms.world, need, comms.hosts)
    except BagpipeError as error:  # on every rank alike
        raise RefusalError(str(error)) from error
