"""Moving a window over a segment: what is loaded when, and what beside planning."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan, SharedPlan
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.segment_planner import measure_segment, plan_segment
from bagpipe_hpc.planning.window import Window

BATCHES = [Bags.one_hot(np.asarray([[number]])) for number in range(6)]


class Noting:
    """Notes what it does. Where it loads beside planning, each waits for the other to have begun."""

    window = Window(3, 1)

    def __init__(self, *, loads_beside: bool, wrong: int = -1) -> None:
        self.loads_beside = loads_beside
        self.loaded: list[int] = []
        self.planned: list[int] = []
        self._wrong = wrong
        self._both = threading.Barrier(2, timeout=60)

    def start_segment(self, *, training: bool, first_step: int) -> None:
        pass

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:  # noqa: ARG002
        number = int(rows.values[0])
        if self.loads_beside and number >= self.window.lookahead:
            self._both.wait()
        if number == self._wrong:
            raise DataError(f"batch {number}")
        self.loaded.append(number)

    def decide(self, number: int) -> None:
        self.planned.append(number)

    def plan(self, number: int) -> BatchPlan:
        if self.loads_beside and number + self.window.lookahead < len(BATCHES):
            self._both.wait()
        self.planned.append(number)
        return self.closing_plan()

    def closing_plan(self) -> BatchPlan:
        lengths = dict.fromkeys(SharedPlan.ARRAYS, 0)
        integers = dict.fromkeys(
            ("batch", "samples", "prefetch_after", "retire_group", "unique_rows", "fetched_rows"), 0
        )
        return BatchPlan(SharedPlan.allocate(lengths, **integers), ())

    def size(self) -> PlannerSize:
        return PlannerSize(0, 0, 0, 0)


@pytest.mark.parametrize("loads_beside", [False, True])
def test_the_window_is_full_when_a_batch_is_planned(loads_beside: bool) -> None:
    """And when a plan is there, nothing goes on any more; one batch more is loaded then, where it was beside."""
    planner = Noting(loads_beside=loads_beside)
    for number, _ in enumerate(plan_segment(planner, BATCHES)):
        planned = min(number + 1, len(BATCHES))
        assert planner.planned == list(range(planned))
        assert planner.loaded == list(range(min(planned + 2 + loads_beside, len(BATCHES))))
    assert number == len(BATCHES)


def test_measuring_loads_nothing_beside() -> None:
    planner = Noting(loads_beside=True)
    planner.window = Window(len(BATCHES), 1)
    measure_segment(planner, BATCHES)
    assert planner.planned == planner.loaded == list(range(len(BATCHES)))


@pytest.mark.parametrize("loads_beside", [False, True])
def test_a_wrong_batch_comes_behind_the_plans_that_are_made_without_it(loads_beside: bool) -> None:
    planner = Noting(loads_beside=loads_beside, wrong=4)
    plans = plan_segment(planner, BATCHES)
    next(plans)
    next(plans)
    with pytest.raises(DataError, match="batch 4"):
        next(plans)
    assert planner.planned == [0, 1]


@pytest.mark.parametrize("batches", [0, 2, 6])
def test_a_segment_may_be_shorter_than_the_window(batches: int) -> None:
    planner = Noting(loads_beside=True)
    planner.window = Window(len(BATCHES), 1)
    assert len(list(plan_segment(planner, BATCHES[:batches]))) == batches + 1
    assert planner.loaded == list(range(batches))
