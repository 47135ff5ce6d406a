"""Moves a planner's window over the batches of a segment."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.planner import Planner

Batches = Iterable[NDArray[np.integer]]


def plan_segment(
    planner: Planner, batches: Batches, *, training: bool = True, first_step: int = 0
) -> Iterator[BatchPlan]:
    """Plan a segment: one plan a batch, then the closing plan, after which no row is resident.

    Args:
        planner: the rows' state; it is in use until the last plan has been taken.
        batches: global rows of each batch, integers `[n, F]`; read `lookahead` batches ahead of the plans.
        training: false for an evaluation, whose rows are dropped instead of written back.
        first_step: training steps done before the segment; versions count from there.
    """
    planner.start_segment(training=training, first_step=first_step)
    for number in _load_ahead(planner, iter(batches)):
        yield planner.plan(number)
    yield planner.closing_plan()


def measure_segment(planner: Planner, batches: Batches) -> None:
    """Assign slots as `plan_segment` does, without writing plans: the planner then knows how many it takes."""
    planner.start_segment(training=True, first_step=0)
    for number in _load_ahead(planner, iter(batches)):
        planner.decide(number)
    planner.closing_plan()


def _load_ahead(planner: Planner, batches: Iterator[NDArray[np.integer]]) -> Iterator[int]:
    """Number of each batch in turn, with the window loaded for it."""
    number = loaded = 0
    while True:
        while loaded < number + planner.window.lookahead and (rows := next(batches, None)) is not None:
            planner.load(rows)
            loaded += 1
        if number == loaded:
            return
        yield number
        number += 1
