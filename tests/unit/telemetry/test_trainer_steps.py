"""Sums of all trainers over the same steps, as one matrix."""

from dataclasses import asdict, fields

import numpy as np
import pytest

from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps, steps_as_row

QUICK = StepStats(steps=4, samples=640, total_s=2.0, wait_rows_s=0.5, wait_reductions_s=0.75, rows_fetched=8)
SLOW = StepStats(steps=4, samples=640, total_s=2.0, wait_rows_s=1.0, wait_reductions_s=0.25, rows_fetched=4)


def test_each_trainer_has_its_own_sums() -> None:
    """Also those that no float of half the width could hold, and counts are whole numbers again."""
    odd = StepStats(**{field.name: 2**52 + 1 - number for number, field in enumerate(fields(StepStats))})
    steps = TrainerSteps.of([QUICK, odd, SLOW])
    assert len(steps) == 3
    assert [steps[trainer] for trainer in range(3)] == [QUICK, odd, SLOW]
    assert [type(value) for value in asdict(steps[0]).values()] == [type(value) for value in asdict(QUICK).values()]
    assert steps.each() == [QUICK.per_step(), odd.per_step(), SLOW.per_step()]
    assert TrainerSteps(np.stack([steps_as_row(QUICK), steps_as_row(SLOW)])).each() == steps.each()[::2]


def test_the_mean_is_that_of_the_means() -> None:
    mean = TrainerSteps.of([QUICK, SLOW]).mean()
    each = QUICK.per_step(), SLOW.per_step()
    assert mean == pytest.approx({name: (each[0][name] + each[1][name]) / 2 for name in each[0]})
    assert (mean["wait_rows_ms"], mean["rows_fetched"]) == (187.5, 1.5)


def test_the_trainer_that_waits_least_is_waited_for() -> None:
    assert TrainerSteps.of([QUICK, SLOW, QUICK]).waited_for() == 1
    assert TrainerSteps.of([QUICK]).waited_for() == 0


def test_rows_that_come_and_go_are_counted_once() -> None:
    """All trainers fetch the rows that they share; each writes back its part."""
    steps = TrainerSteps.of([StepStats(fetched_rows=9, rows_written_back=2), StepStats(fetched_rows=9)])
    assert steps.newly_resident() == 7


def test_rows_that_are_added_to_may_stay() -> None:
    assert TrainerSteps.of([StepStats(fetched_rows=9), StepStats(rows_added=3)]).newly_resident() is None
