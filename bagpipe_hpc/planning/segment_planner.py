"""Moves a planner's window over the batches of a segment."""

from collections import deque
from collections.abc import Iterable, Iterator

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.slices import BatchSlices, Slicing
from bagpipe_hpc.planning.planner import Planner


def plan_segment(
    planner: Planner,
    batches: Iterable[Bags],
    slicing: Slicing | None = None,
    *,
    training: bool = True,
    first_step: int = 0,
) -> Iterator[BatchPlan]:
    """Plan a segment: one plan a batch, then the closing plan, after which no row is resident.

    Args:
        planner: the rows' state; it is in use until the last plan has been taken.
        batches: global rows of each batch; read `lookahead` batches ahead of the plans.
        slicing: which trainer gets which samples of a batch; contiguous slices if it is not given.
        training: false for an evaluation, whose rows are dropped instead of written back.
        first_step: training steps done before the segment; versions count from there.
    """
    planner.start_segment(training=training, first_step=first_step)
    for number, slices in _load_ahead(planner, iter(batches), slicing):
        plan = planner.plan(number)
        yield plan if slices is None else plan.with_samples(slices if training else slices.whole)
    yield planner.closing_plan()


def measure_segment(planner: Planner, batches: Iterable[Bags], slicing: Slicing | None = None) -> None:
    """Assign slots as `plan_segment` does, without writing plans: the planner then knows how many it takes."""
    planner.start_segment(training=True, first_step=0)
    for number, _ in _load_ahead(planner, iter(batches), slicing):
        planner.decide(number)
    planner.closing_plan()


def _load_ahead(
    planner: Planner, batches: Iterator[Bags], slicing: Slicing | None
) -> Iterator[tuple[int, BatchSlices | None]]:
    """Number and slices of each batch in turn, with the window loaded for it."""
    number = loaded = 0
    in_window: deque[BatchSlices | None] = deque()
    while True:
        while loaded < number + planner.window.lookahead and (rows := next(batches, None)) is not None:
            slices = slicing(rows) if slicing else None
            if slices is None or slices.samples is None:
                planner.load(rows)
            else:
                planner.load(slices.arranged(rows), slices.bounds)
            in_window.append(slices)
            loaded += 1
        if number == loaded:
            return
        yield number, in_window.popleft()
        number += 1
