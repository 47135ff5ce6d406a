"""Which steps count, and that every rank still has work when the last of them ends."""

from collections.abc import Iterator

import numpy as np
import pytest

from bagpipe_hpc.config.doors import NoSettings
from bagpipe_hpc.config.schema import KernelsConfig, LookaheadConfig
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from benchmarks.jobs.step_range import StepRange


@pytest.mark.parametrize(
    ("lookahead", "measured", "at_least", "every", "expected"),
    [
        (LookaheadConfig(1), 100, 0, 20, StepRange(first=20, last=120, total=127)),
        (LookaheadConfig(10), 40, 0, 20, StepRange(first=20, last=60, total=87)),
        (LookaheadConfig(200), 100, 0, 20, StepRange(first=200, last=300, total=803)),
        (LookaheadConfig(201), 1, 0, 20, StepRange(first=220, last=240, total=745)),
        (LookaheadConfig(40, group=3), 7, 60, 1, StepRange(first=60, last=67, total=156)),
    ],
)
def test_the_first_window_and_the_oracles_lead_are_left_out(
    lookahead: LookaheadConfig, measured: int, at_least: int, every: int, expected: StepRange
) -> None:
    assert StepRange.steady(lookahead, measured, at_least=at_least, every=every) == expected


def test_steps_count_behind_the_first_up_to_the_last() -> None:
    steps = StepRange(first=20, last=22, total=30)
    assert [step for step in range(31) if steps.counts(step)] == [21, 22]


@pytest.mark.parametrize("lookahead", [LookaheadConfig(1), LookaheadConfig(4, group=3), LookaheadConfig(10)])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_oracle_still_reads_in_the_last_step_that_counts(lookahead: LookaheadConfig, backend: str) -> None:
    """It makes a plan while the one before waits for a trainer to finish the plan that is L + 2C + 1 before that."""
    steps = StepRange.steady(lookahead, 6)
    facts = RunFacts((0, 50), 1, 3, kernels=KernelsConfig(backend=backend))
    window = Window(lookahead.batches, lookahead.group_batches)
    read = []

    def batches() -> Iterator[Bags]:
        for batch in range(steps.total):
            read.append(batch)
            yield Bags.one_hot(np.array([[batch % 50]] * 3, dtype=np.int64))

    plans = plan_segment(LookaheadPolicy(NoSettings(), facts).planner(window), batches())
    waits_for = steps.last - 1 + window.lookahead + 2 * window.group + 1
    for _ in range(waits_for + 2):
        next(plans)
    assert len(read) < steps.total
