"""Moves a planner's window over the batches of a segment."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import Self

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.full_batches import Keep, sliced
from bagpipe_hpc.plan.slices import BatchSlices, Slicing
from bagpipe_hpc.planning.planner import Planner


def plan_segment(
    planner: Planner,
    batches: Iterable[Bags],
    slicing: Slicing | None = None,
    keep: Keep | None = None,
    *,
    training: bool = True,
    first_step: int = 0,
) -> Iterator[BatchPlan]:
    """Plan a segment: one plan a batch that is trained on, then the closing plan, after which no row is resident.

    Args:
        planner: the rows' state; it is in use until the last plan has been taken, but not while a plan is looked at.
        batches: global rows of each batch; read `lookahead` batches ahead of the plans, or one more.
        slicing: which trainer gets which samples of a batch; contiguous slices if it is not given.
        keep: which samples stay, in full batches; all if it is not given. It comes with a slicing.
        training: false for an evaluation, whose rows are dropped instead of written back.
        first_step: training steps done before the segment; versions count from there.
    """
    planner.start_segment(training=training, first_step=first_step)
    with _Loader(planner, sliced(batches, slicing, keep)) as loader:
        for number in count():
            if not loader.fill_window(number):
                break
            with loader.loading_beside():
                plan = planner.plan(number)
            slices = loader.leave_window()
            yield plan if slices is None else plan.with_samples(slices if training else slices.whole)
    yield planner.closing_plan()


def measure_segment(planner: Planner, batches: Iterable[Bags], slicing: Slicing | None = None) -> None:
    """Assign slots as `plan_segment` does, without writing plans: the planner then knows how many it takes."""
    planner.start_segment(training=True, first_step=0)
    with _Loader(planner, sliced(batches, slicing, None)) as loader:
        for number in count():
            if not loader.fill_window(number):
                break
            planner.decide(number)
            loader.leave_window()
    planner.closing_plan()


class _Loader:
    """Loads the batches of a segment into a planner: those of its window, and one more while it plans.

    The batches are read, and shared out, by the thread that calls.
    """

    def __init__(self, planner: Planner, batches: Iterator[tuple[Bags, BatchSlices | None]]) -> None:
        self._planner = planner
        self._batches = batches
        self._in_window: deque[BatchSlices | None] = deque()
        self._loaded = 0
        self._beside: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, "loader")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown()

    def fill_window(self, number: int) -> bool:
        """Load what the window of a batch lacks. Returns whether there is such a batch."""
        if self._beside is not None:
            self._beside.result()
            self._beside = None
        while self._loaded < number + self._planner.window.lookahead and (batch := self._next()) is not None:
            self._planner.load(*batch)
        return number < self._loaded

    @contextmanager
    def loading_beside(self) -> Iterator[None]:
        """Meanwhile a thread loads the batch behind the window, where the planner allows it; `fill_window` says how."""
        if self._planner.loads_beside and (batch := self._next()) is not None:
            self._beside = self._thread.submit(self._planner.load, *batch)
        try:
            yield
        finally:
            if self._beside is not None:
                wait([self._beside])

    def leave_window(self) -> BatchSlices | None:
        """Slices of the oldest batch of the window, which is planned."""
        return self._in_window.popleft()

    def _next(self) -> tuple[Bags, list[int] | None] | None:
        """The next batch and its slices, as `Planner.load` takes them; None behind the last."""
        if (batch := next(self._batches, None)) is None:
            return None
        rows, slices = batch
        self._in_window.append(slices)
        self._loaded += 1
        if slices is None or slices.samples is None:
            return rows, None
        return slices.arranged(rows), slices.bounds
