"""Plans on the wire: the shared part is broadcast, each trainer's part is sent to it alone, and credits flow back.

A credit says that a trainer has finished a plan. The oracle sends a plan only when it is less than `plans_ahead` plans
away from the slowest trainer, so the memory on both sides is bounded whatever the speeds.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.communicators import ORACLE_RANK
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import wait_for_all, wait_until
from bagpipe_hpc.plan.batch_plan import BatchPlan, GroupPlan, ReceivedPlan, SharedPlan, TrainerPlan

_TAG_TRAINER_PLAN = 1
_TAG_CREDIT = 2
_TAG_WORD = 3
_TAG_WEIGHTS = 4
_TAG_SEEN = 5
_LONGEST_SLEEP_S = 2e-3
"""Of the oracle, which is several batches ahead when it waits; others may share its core."""

_MOST_NUMBERS = 1 << 24
"""Of a message with weights."""


WaitsForAll = Callable[[Awaited, str, float], None]
"""Waits until requests are complete and frees them; is told what is waited for, and a limit in seconds, after which it
raises a `WaitTimeoutError`. Those that are not complete then stay."""


class Word(NamedTuple):
    """What the first trainer says behind some evaluations.

    Attributes:
        goes_on: whether training goes on.
        log_loss: that was found; NaN where nobody asks.
    """

    goes_on: bool
    log_loss: float


class PlanSender:
    """The oracle's end.

    Args:
        comm: the planning communicator.
        plans_ahead: most plans that may be under way between the oracle and the slowest trainer.
        timeout_s: longest wait for a trainer to finish a plan.
        wait: for requests of trainers, as `WaitsForAll` says.
    """

    def __init__(self, comm: MPI.Comm, plans_ahead: int, timeout_s: float, wait: WaitsForAll = wait_for_all) -> None:
        self._comm = comm
        self._plans_ahead = plans_ahead
        self._timeout_s = timeout_s
        self._wait = wait
        self._sent = 0
        self._credits = [0] * (comm.Get_size() - 1)
        self._coming: dict[int, tuple[MPI.Request, NDArray[np.int64]]] = {}
        self._under_way: deque[tuple[list[MPI.Request], list[NDArray[np.uint8] | NDArray[np.int64]]]] = deque()

    def send(self, plan: BatchPlan) -> None:
        """Start sending a plan, once flow control allows it.

        Raises:
            WaitTimeoutError: a trainer did not finish an earlier plan in time.
        """
        self._wait_for_credits(self._sent - self._plans_ahead + 1)
        self.advance()
        encoded = [group.encode() for group in plan.groups]
        sizes = np.asarray([[part.size for part in group] for group in encoded], dtype=np.int64)
        shared, *parts = (_joined(pieces) for pieces in zip(*encoded, strict=True))
        requests = [self._comm.Ibcast(sizes, ORACLE_RANK), self._comm.Ibcast(shared, ORACLE_RANK)]
        requests += [
            self._comm.Isend(part, dest=1 + trainer, tag=_TAG_TRAINER_PLAN) for trainer, part in enumerate(parts)
        ]
        self._under_way.append((requests, [sizes, shared, *parts]))
        self._sent += 1

    def advance(self) -> None:
        """Let plans that are being sent move on, and forget those that have been. Never waits."""
        while self._under_way and MPI.Request.Testall(self._under_way[0][0]):
            self._under_way.popleft()

    def finish(self) -> None:
        """Wait until every trainer has finished every plan, letting MPI make progress.

        Raises:
            WaitTimeoutError: a trainer did not finish a plan in time.
        """
        for plans in range(min(self._credits), self._sent + 1):
            self._wait_for_credits(plans)
        for requests, _ in self._under_way:
            wait_for_all(requests, "the last plans to be sent", self._timeout_s)
        self._under_way.clear()

    def await_word(self) -> Word:
        """Wait until every trainer has finished every plan, and the first one has said what it has found.

        Raises:
            WaitTimeoutError: a trainer did not finish a plan in time, or the word did not come.
        """
        self.finish()
        what = "trainer 0 to say whether training goes on"
        has_come = partial(self._comm.Iprobe, source=1, tag=_TAG_WORD)
        wait_until(has_come, what, self._timeout_s, longest_sleep_s=_LONGEST_SLEEP_S)
        message = np.empty(len(Word._fields), dtype=np.float64)
        self._comm.Recv(message, source=1, tag=_TAG_WORD)
        return Word(bool(message[0]), float(message[1]))

    def await_weights(self, rows: int, width: int) -> NDArray[np.float32]:
        """Wait until every trainer has finished every plan, and the first one has sent the weights of watched rows.

        It goes on behind `weights_seen`.

        Args:
            rows: number of rows n.
            width: of a row, D.

        Returns:
            float32 `[n, D]`.

        Raises:
            WaitTimeoutError: a trainer did not finish a plan in time, or weights did not come.
        """
        self.finish()
        weights = np.empty((rows, width), dtype=np.float32)
        for part in _pieces(weights):
            has_come = partial(self._comm.Iprobe, source=1, tag=_TAG_WEIGHTS)
            wait_until(has_come, "trainer 0 to send weights of rows", self._timeout_s, longest_sleep_s=_LONGEST_SLEEP_S)
            self._comm.Recv(part, source=1, tag=_TAG_WEIGHTS)
        return weights

    def weights_seen(self) -> None:
        """Let the first trainer go on: what is kept of the weights is on the disk."""
        message = np.ones(1, dtype=np.int64)
        wait_for_all([self._comm.Isend(message, dest=1, tag=_TAG_SEEN)], "trainer 0 to go on", self._timeout_s)

    def _wait_for_credits(self, plans: int) -> None:
        """Wait until every trainer has finished `plans` plans."""
        while late := [trainer for trainer, finished in enumerate(self._credits) if finished < plans]:
            for trainer in late:
                if trainer not in self._coming:  # as it is behind a wait that has failed
                    message = np.empty(1, dtype=np.int64)
                    request = self._comm.Irecv(message, source=1 + trainer, tag=_TAG_CREDIT)
                    self._coming[trainer] = request, message
            requests = [self._coming[trainer][0] for trainer in late]
            try:
                self._wait(requests, "trainers to finish plans", self._timeout_s)
            except WaitTimeoutError:
                slow = [trainer for trainer, request in zip(late, requests, strict=True) if not request.Get_status()]
                if slow:
                    what = f"trainer {slow[0]} to finish plan {plans - 1}"
                    raise WaitTimeoutError.after(self._timeout_s, what) from None
                MPI.Request.Waitall(requests)  # the last one came in this moment
            for trainer in late:
                _, message = self._coming.pop(trainer)
                self._credits[trainer] = int(message[0])


class PlanReceiver:
    """A trainer's end: plans are received by the mover's thread, credits are given by the compute thread.

    Args:
        comm: the planning communicator.
        groups: number of groups of tables.
    """

    def __init__(self, comm: MPI.Comm, groups: int = 1) -> None:
        self._comm = comm
        self._sizes = np.empty((groups, comm.Get_size()), dtype=np.int64)
        self._requests: list[MPI.Request] = []
        self._buffers: list[NDArray[np.uint8]] = []
        self._finished = 0
        self._told: deque[tuple[MPI.Request, NDArray[Any]]] = deque()

    @property
    def is_receiving(self) -> bool:
        """Whether a part of the next plan has arrived."""
        return bool(self._buffers)

    def poll(self) -> ReceivedPlan | None:
        """The next plan if it has arrived whole, else None; never waits. Keep calling until the last plan is there."""
        if not self._requests:
            self._requests = [self._comm.Ibcast(self._sizes, ORACLE_RANK)]
        if not MPI.Request.Testall(self._requests):
            return None
        if not self._buffers:
            sizes = self._sizes[:, [0, self._comm.Get_rank()]]
            self._buffers = [np.empty(int(size), dtype=np.uint8) for size in sizes.sum(0)]
            self._requests = [
                self._comm.Ibcast(self._buffers[0], ORACLE_RANK),
                self._comm.Irecv(self._buffers[1], source=ORACLE_RANK, tag=_TAG_TRAINER_PLAN),
            ]
            if not MPI.Request.Testall(self._requests):
                return None
        ends = np.cumsum(self._sizes[:, [0, self._comm.Get_rank()]], axis=0)
        shared, own = (np.split(whole, at) for whole, at in zip(self._buffers, ends[:-1].T, strict=True))
        self._requests, self._buffers = [], []
        groups = zip(map(SharedPlan.decode, shared), map(TrainerPlan.decode, own), strict=True)
        return ReceivedPlan(tuple(GroupPlan(*group) for group in groups))

    def awaited(self) -> list[Awaited]:
        """What `poll` waits for."""
        return [self._requests] if self._requests else []

    def give_credit(self) -> None:
        """Tell the oracle that one more plan is finished."""
        self._finished += 1
        self._tell(np.asarray([self._finished], dtype=np.int64), _TAG_CREDIT)

    def give_word(self, word: Word) -> None:
        """Tell the oracle, who waits for it after some evaluations, what was found: on the first trainer."""
        self._tell(np.asarray(word, dtype=np.float64), _TAG_WORD)

    def show_weights(self, weights: NDArray[np.float32], timeout_s: float, watch: Callable[[], None]) -> None:
        """Send the weights of watched rows, float32 `[n, D]`, on the first trainer, and wait until they were seen."""
        sent = [self._comm.Isend(part, dest=ORACLE_RANK, tag=_TAG_WEIGHTS) for part in _pieces(weights)]
        wait_for_all(sent, "the oracle to take the weights of rows", timeout_s, watch)
        message = np.empty(1, dtype=np.int64)
        seen = self._comm.Irecv(message, source=ORACLE_RANK, tag=_TAG_SEEN)
        wait_for_all([seen], "the oracle to decide by the weights of rows", timeout_s, watch)

    def _tell(self, message: NDArray[Any], tag: int) -> None:
        self._told.append((self._comm.Isend(message, dest=ORACLE_RANK, tag=tag), message))
        while self._told and self._told[0][0].Test():
            self._told.popleft()

    def finish(self, timeout_s: float, watch: Callable[[], None]) -> None:
        """Wait until the last credits are sent."""
        wait_for_all([request for request, _ in self._told], "the last credits to be sent", timeout_s, watch)
        self._told.clear()


def _pieces(weights: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Weights of rows in pieces that a message can have, float32 `[some, D]` each."""
    rows = max(1, _MOST_NUMBERS // max(1, weights.shape[1]))
    return [weights[first : first + rows] for first in range(0, len(weights), rows)]


def _joined(pieces: tuple[NDArray[np.uint8], ...]) -> NDArray[np.uint8]:
    """What goes to one receiver: the parts of all groups, one behind the other."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
