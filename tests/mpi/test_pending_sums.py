"""Sums under way begin their stages in one order, whatever of them is over first."""

import threading
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.mpi.pending_sum import PendingSum, Wait
from bagpipe_hpc.mpi.requests import SpentRequests
from bagpipe_hpc.mpi.waiting import nothing_to_watch

pytestmark = pytest.mark.mpi(min_size=1)  # no messages: its operations are over when the test says so


class Operation:
    """A request that is over when the test says so."""

    is_over = False

    def Get_status(self) -> bool:  # noqa: N802 - MPI's name
        return self.is_over


class Sums:
    """Sums of some stages each, what they have begun, and their operations by number and stage."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.operations: dict[tuple[int, int], Operation] = {}
        self.first_pieces: dict[int, Operation] = {}
        self.added: list[int] = []
        """Sums whose first pieces were."""
        self.newest: PendingSum | None = None
        self._lock = threading.Lock()
        self.spent = SpentRequests()

    def start(self, number: int, stages: int = 2, *, in_pieces: bool = False) -> PendingSum:
        """Start a sum, whose first stage may begin two operations, of which the second one has the stage's number."""
        begun = self._stages(number, stages, in_pieces=in_pieces)
        self.newest = PendingSum(begun, stages, self.newest, self._lock, 30.0, nothing_to_watch, self.spent)
        return self.newest

    def _stages(self, number: int, stages: int, *, in_pieces: bool) -> Generator[Any, None, Any]:
        for stage in range(stages):
            self.begun.append((number, stage))
            self.operations[number, stage] = Operation()
            if in_pieces and stage == 0:
                self.first_pieces[number] = Operation()
                yield Wait(self.first_pieces[number], ends_stage=False)
                self.added.append(number)
            yield Wait(self.operations[number, stage])
        return np.full(1, number)

    def end(self, number: int, stage: int) -> None:
        self.operations[number, stage].is_over = True
        assert self.newest is not None
        self.newest.advance()


def test_a_stage_begins_when_the_older_sum_has_begun_its_own() -> None:
    """All trainers start operations of a communicator in the same order, whichever message came first."""
    sums = Sums()
    sums.start(0), sums.start(1)
    sums.end(1, 0)
    assert sums.begun == [(0, 0), (1, 0)]
    sums.end(0, 0)
    assert sums.begun == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_a_stage_does_not_wait_for_the_end_of_the_older_sum() -> None:
    """Their latencies pass side by side."""
    sums = Sums()
    first, second, third = (sums.start(number) for number in range(3))
    for number in range(3):
        sums.end(number, 0)
    assert sums.begun[3:] == [(0, 1), (1, 1), (2, 1)]
    assert not any(pending.is_complete for pending in (first, second, third))


def test_a_newer_sum_may_be_complete_first() -> None:
    """Its weights may be needed first; who moves sums on goes on until the older one is complete, too."""
    sums = Sums()
    first, second = sums.start(0), sums.start(1)
    for number, stage in ((0, 0), (1, 0), (1, 1)):
        sums.end(number, stage)
    assert second.wait("the second") == 1
    assert (first.is_complete, second.are_all_complete) == (False, False)
    sums.end(0, 1)
    assert second.are_all_complete
    assert first.wait("the first") == 0


def test_a_sum_without_operations_keeps_the_order_of_those_around_it() -> None:
    sums = Sums()
    sums.start(0), sums.start(1, stages=0), sums.start(2)
    sums.end(2, 0)
    assert sums.begun == [(0, 0), (2, 0)]
    sums.end(0, 0), sums.end(0, 1)
    assert sums.begun == [(0, 0), (2, 0), (0, 1), (2, 1)]


def test_a_first_piece_is_added_up_though_the_older_sum_has_begun_no_further_stage() -> None:
    """Behind the last one a stage begins, and waits for that sum's."""
    sums = Sums()
    sums.start(0), sums.start(1, in_pieces=True)
    sums.first_pieces[1].is_over = True
    assert sums.newest is not None
    sums.newest.advance()
    assert sums.added == [1]
    sums.end(1, 0)
    assert sums.begun == [(0, 0), (1, 0)]
    sums.end(0, 0)
    assert sums.begun == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_pieces_of_an_older_sum_are_one_stage() -> None:
    """So that a newer one begins no stage before it."""
    sums = Sums()
    sums.start(0, in_pieces=True), sums.start(1)
    sums.first_pieces[0].is_over = True
    sums.end(1, 0)
    assert sums.added == [0]
    assert sums.begun == [(0, 0), (1, 0)]
    sums.end(0, 0)
    assert sums.begun == [(0, 0), (1, 0), (0, 1), (1, 1)]
