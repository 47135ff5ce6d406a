"""Moves a planner's window over the batches of a segment."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.full_batches import Keep, sliced
from bagpipe_hpc.plan.slices import BatchSlices, Slicing
from bagpipe_hpc.planning.planner import DraftingPlanner, Planner, writing_threads_of


def plan_segment(
    planner: Planner,
    batches: Iterable[Bags],
    slicing: Slicing | None = None,
    keep: Keep | None = None,
    *,
    training: bool = True,
    first_step: int = 0,
) -> Iterator[BatchPlan]:
    """Plan a segment: a plan for each batch that is trained on, then the closing plan, after which no row is resident.

    Args:
        planner: holds the rows' state; it is in use until the last plan has been taken. While the caller holds a plan,
            it may write others, but loads and decides nothing.
        batches: global rows of each batch; they are read `lookahead` batches ahead of decisions, or one more. Decisions
            are ahead of the plans by no more than the planner's writing threads.
        slicing: which trainer gets which samples of a batch; contiguous slices if it is not given.
        keep: which samples stay, in full batches; all if it is not given. It needs a slicing.
        training: false for an evaluation, whose rows are dropped instead of written back.
        first_step: training steps done before the segment; versions count from there.
    """
    planner.start_segment(training=training, first_step=first_step)
    with _Loader(planner, sliced(batches, slicing, keep)) as loader, _PlanWriters(planner) as plans:

        def given(plan: BatchPlan) -> BatchPlan:
            slices = loader.leave_window()
            return plan if slices is None else plan.with_samples(slices if training else slices.whole)

        number, failure = 0, None
        while failure is None:
            try:
                if not loader.fill_window(number):
                    break
                with loader.loading_beside():
                    plans.plan(number)
            except Exception as error:  # noqa: BLE001 - raised below, after the sound plans before it
                failure = error
            else:
                yield from map(given, plans.ready())
                number += 1
        yield from map(given, plans.rest())
        if failure is not None:
            raise failure
    yield planner.closing_plan()


def measure_segment(planner: Planner, batches: Iterable[Bags], slicing: Slicing | None = None) -> None:
    """Assign slots as `plan_segment` does, without writing plans; the planner's `size` then says how many it took."""
    planner.start_segment(training=True, first_step=0)
    with _Loader(planner, sliced(batches, slicing, None)) as loader:
        number = 0
        while loader.fill_window(number):
            planner.decide(number)
            loader.leave_window()
            number += 1
    planner.closing_plan()


class _Loader:
    """Loads the batches of a segment into a planner: those of its window, and one more while it plans.

    The calling thread reads the batches and gives their samples to trainers.
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
        """Load what the window of batch `number` lacks; returns whether there is such a batch."""
        if self._beside is not None:
            self._beside.result()
            self._beside = None
        while self._loaded < number + self._planner.window.lookahead and (batch := self._next()) is not None:
            self._planner.load(*batch)
        return number < self._loaded

    @contextmanager
    def loading_beside(self) -> Iterator[None]:
        """Load the batch after the window in a thread, if the planner allows it; `fill_window` raises its errors."""
        if self._planner.loads_beside and (batch := self._next()) is not None:
            self._beside = self._thread.submit(self._planner.load, *batch)
        try:
            yield
        finally:
            if self._beside is not None:
                wait([self._beside])

    def leave_window(self) -> BatchSlices | None:
        """Slices of the oldest batch whose plan is not given yet."""
        return self._in_window.popleft()

    def _next(self) -> tuple[Bags, list[int] | None] | None:
        """The next batch and its slices, as `Planner.load` takes them; None after the last."""
        if (batch := next(self._batches, None)) is None:
            return None
        rows, slices = batch
        self._in_window.append(slices)
        self._loaded += 1
        if slices is None or slices.samples is None:
            return rows, None
        return slices.arranged(rows), slices.bounds


class _PlanWriters:
    """Writes plans, in threads of their own where the planner allows it, while it decides on later batches."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._most = writing_threads_of(planner)
        self._ready: deque[BatchPlan] = deque()
        self._coming: deque[Future[BatchPlan]] = deque()
        self._threads = ThreadPoolExecutor(max(1, self._most), "plan-writer")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown()

    def plan(self, number: int) -> None:
        """Decide on a batch, and start to write its plan; if all threads are busy, wait for the oldest plan first."""
        if not (self._most and isinstance(self._planner, DraftingPlanner)):
            self._ready.append(self._planner.plan(number))
            return
        write = self._planner.draft(number)
        if len(self._coming) == self._most:
            self._ready.append(self._oldest())
        self._coming.append(self._threads.submit(write))

    def ready(self) -> Iterator[BatchPlan]:
        """The plans that are written and have not been given, in their order."""
        while self._ready or (self._coming and self._coming[0].done()):
            yield self._ready.popleft() if self._ready else self._oldest()

    def rest(self) -> Iterator[BatchPlan]:
        """All plans that have not been given, when they are written."""
        while self._ready or self._coming:
            yield self._ready.popleft() if self._ready else self._oldest()

    def _oldest(self) -> BatchPlan:
        try:
            return self._coming.popleft().result()
        except BaseException:
            self._coming.clear()  # later plans are of no use without it
            raise
