"""Moving a window over a segment: what is loaded when, and what beside planning."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan, SharedPlan
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.segment_planner import measure_segment, plan_segment
from bagpipe_hpc.planning.window import Window

BATCHES = [Bags.one_hot(np.asarray([[number]])) for number in range(6)]


def plan_of(number: int) -> BatchPlan:
    """A plan that says nothing but its batch."""
    lengths = dict.fromkeys(SharedPlan.ARRAYS, 0)
    integers = dict.fromkeys(("samples", "prefetch_after", "retire_group", "unique_rows", "fetched_rows"), 0)
    return BatchPlan(SharedPlan.allocate(lengths, batch=number, **integers), ())


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
        return plan_of(len(self.planned))

    def size(self) -> PlannerSize:
        return PlannerSize(0, 0, 0, 0)


class Drafting(Noting):
    """Others write its plans. Each waits until so many batches are decided behind its own, as far as there are."""

    def __init__(self, writing: int, behind: int, *, wrong: int = -1, unwritable: int = -1) -> None:
        super().__init__(loads_beside=False, wrong=wrong)
        self.writing_threads = writing
        self.written: list[int] = []
        self._behind = behind
        self._unwritable = unwritable
        self._changed = threading.Condition()

    def draft(self, number: int) -> Callable[[], BatchPlan]:
        with self._changed:
            assert set(range(number - self.writing_threads)) <= set(self.written)
            self.planned.append(number)
            self._changed.notify_all()
        return partial(self._write, number)

    def wait_for_plans(self) -> None:
        """Until all plans are written whose batches are decided."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.written) == len(self.planned), timeout=60)

    def _write(self, number: int) -> BatchPlan:
        with self._changed:
            assert set(range(number - self.writing_threads + 1)) <= set(self.written)
            awaited = min(number + self._behind, len(BATCHES) - 1)
            assert self._changed.wait_for(lambda: awaited in self.planned, timeout=60)
            if number == self._unwritable:
                raise MemoryError(f"plan {number}")
            self.written.append(number)
            self._changed.notify_all()
        return plan_of(number)


@pytest.mark.parametrize(("writing", "behind"), [(1, 0), (1, 1), (3, 0), (3, 1), (3, 3)])
def test_plans_are_written_while_later_batches_are_decided(writing: int, behind: int) -> None:
    """As many of them as there are threads for it, and they are given in their order."""
    plans = [plan.shared.batch for plan in plan_segment(Drafting(writing, behind), BATCHES)]
    assert plans == list(range(len(BATCHES) + 1))


@pytest.mark.parametrize("writing", [1, 3])
def test_plans_are_given_when_they_are_written(writing: int) -> None:
    """Where batches are read slowly, nobody waits until all who write have something to do."""
    planner = Drafting(writing, behind=0)

    def read_slowly() -> Iterator[Bags]:
        for batch in BATCHES:
            planner.wait_for_plans()
            yield batch

    given = 0
    for plan in plan_segment(planner, read_slowly()):
        given += 1
        assert plan.shared.batch == given - 1
        assert len(planner.planned) - given <= 1
    assert given == len(BATCHES) + 1


@pytest.mark.parametrize(
    ("faults", "error", "plans"),
    [({"wrong": 5, "behind": 0}, "batch 5", 3), ({"unwritable": 2, "behind": 0}, "plan 2", 2)],
)
def test_plans_before_what_goes_wrong_are_given_and_none_behind_it(
    faults: dict[str, int], error: str, plans: int
) -> None:
    """A batch that cannot be loaded, or a plan that cannot be written, while others before and behind it are."""
    given = []
    found = ""
    try:
        for plan in plan_segment(Drafting(3, **faults), BATCHES):
            given.append(plan.shared.batch)  # noqa: PERF401
    except (DataError, MemoryError) as raised:
        found = str(raised)
    assert (given, found) == (list(range(plans)), error)


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
