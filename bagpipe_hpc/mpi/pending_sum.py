"""A sum over the trainers that is under way: operations one after the other, which any thread may move on.

`reduction.py` says what these operations are, and this file when they may begin. All trainers have to start the same
operations in the same order. So sums begin each of their stages in the order in which they were started, whichever sum
ends first.
"""

import threading
from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.requests import Awaited, SpentRequests
from bagpipe_hpc.mpi.waiting import wait_until

_TESTS_A_WAIT = 16
"""As `mpi.waiting.TESTS_A_WAKE`, but its sleeps grow longer, and the thread has nothing else to do."""


class Wait(NamedTuple):
    """What a sum goes on behind.

    Attributes:
        request: an operation that it has begun.
        ends_stage: whether it begins another stage then, which it may do in its turn alone.
    """

    request: MPI.Request
    ends_stage: bool = True


Stages = Generator[Wait, None, NDArray[np.float32]]
"""Yields what a sum goes on behind, one after the other, and returns the total."""


class PendingSum:
    """A sum that is under way; any thread may move it on.

    Args:
        stages: yields what it waits for, one after the other, and returns the sum. Each stage begins its operations on
            a communicator of its own.
        count: of its stages.
        older: the sum that was started before this one. It has begun each stage before this one does: all trainers have
            to start the same operations in the same order. Either may be complete first.
        lock: held by whoever moves a sum on: stages then start in one order, and no communicator meets two threads.
        timeout_s: longest wait for the other trainers.
        watch: see `wait_until`.
        spent: takes operations that are complete.
    """

    def __init__(
        self,
        stages: Stages,
        count: int,
        older: "PendingSum | None",
        lock: threading.Lock,
        timeout_s: float,
        watch: Callable[[], None],
        spent: SpentRequests,
    ) -> None:
        self._stages = stages
        self._count = count
        self._older = older
        self._lock = lock
        self._timeout_s = timeout_s
        self._watch = watch
        self._spent = spent
        self._wait: Wait | None = None
        self._total: NDArray[np.float32] | None = None
        self._begun = 0
        self._is_over = False  # of the operation that it waits for
        self._go_on(begins_stage=True)

    @property
    def is_complete(self) -> bool:
        """Whether somebody has seen the sum to be complete; asks nobody."""
        return self._total is not None

    def advance(self) -> bool:
        """Start the next stage if the last one is done; whether the sum is complete. Never waits for other trainers."""
        with self._lock:
            self._advance()
            return self.is_complete

    def _advance(self) -> bool:
        """Whether this sum and all older ones are complete."""
        if self._older is not None and self._older._advance():
            self._older = None
        while self._wait is not None and self._may_go_on_behind(self._wait):
            self._go_on(begins_stage=self._wait.ends_stage)
        return self.are_all_complete

    def _may_go_on_behind(self, wait: Wait) -> bool:
        self._is_over = self._is_over or self._spent.is_over(wait.request)
        return self._is_over and (self._may_begin_stage or not wait.ends_stage)

    def awaited(self) -> list[Awaited]:
        """What this sum and all older ones go on behind; for the thread that frees what is spent, with the lock."""
        older, wait = self._older, self._wait
        own: list[Awaited] = [] if wait is None or self._is_over else [[wait.request]]
        return [*own, *(older.awaited() if older else [])]

    @property
    def are_all_complete(self) -> bool:
        """Whether this sum and all older ones were seen to be complete; asks nobody."""
        return self._wait is None and self._older is None

    @property
    def _may_begin_stage(self) -> bool:
        is_over = self._begun == self._count
        return is_over or self._older is None or self._older._begun > self._begun

    def advance_far(self) -> bool:
        """Advance several times over: between hosts a test moves a long message on by a small part of it."""
        return any(self.advance() for _ in range(_TESTS_A_WAIT))

    def _go_on(self, *, begins_stage: bool) -> None:
        try:
            self._wait = next(self._stages)
            self._is_over = False
            self._begun += begins_stage
        except StopIteration as finished:
            self._wait = None
            self._total = finished.value

    def wait(self, what: str) -> NDArray[np.float32]:
        """The sum over all trainers, float32, shape as given to `start`.

        Raises:
            WaitTimeoutError: another trainer did not take part in time.
        """
        wait_until(self.advance_far, what, self._timeout_s, self._watch)
        assert self._total is not None, "the wait ends when the sum is complete"
        return self._total
