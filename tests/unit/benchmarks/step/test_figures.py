"""Figures of a step from the records of a run, and what its links allow, by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest

from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.rows.record import RowRecord
from benchmarks.jobs.step_range import StepRange
from benchmarks.step.figures import StepFigures, Traffic

FIGURES = StepFigures(
    step_ms=50.0,
    compute_ms=40.0,
    wait_rows_ms=4.0,
    wait_reductions_ms=6.0,
    rows_fetched=900.0,
    rows_written_back=600.0,
    rows_reduced=500.0,
)
RECORD = RowRecord(embedding_dim=8, state=(StateColumns("sum", per_weight=False),), has_version=False)
"""36 bytes, 32 of them weights."""


def progress(step: int, *trainers: dict[str, float]) -> dict[str, Any]:
    mean = {name: sum(own[name] for own in trainers) / len(trainers) for name in trainers[0]}
    return {"event": "progress", "step": step, "of_trainers": {"number": len(trainers), "mean": mean}}


def trainer(total: float, rows: float, reductions: float, fetched: float, written: float) -> dict[str, float]:
    return {
        "total_ms": total,
        "compute_ms": total - rows - reductions,
        "wait_rows_ms": rows,
        "wait_reductions_ms": reductions,
        "reduced_now": 100.0,
        "reduced_later": 200.0,
        "rows_fetched": fetched,
        "rows_written_back": written,
    }


def test_only_steady_steps_count() -> None:
    warming_up, emptying = trainer(999, 900, 9, 9e9, 0), trainer(1, 0, 0, 0, 9e9)
    events = [
        progress(20, warming_up, warming_up),
        progress(40, trainer(40, 2, 8, 100, 50), trainer(42, 4, 8, 120, 60)),
        {"event": "evaluation", "step": 40},
        progress(60, trainer(44, 0, 6, 90, 70), trainer(42, 2, 6, 110, 40)),
        progress(80, emptying, emptying),
    ]
    figures = StepFigures.of_run(events, StepRange(first=20, last=60, total=80))
    assert figures == StepFigures(
        step_ms=42.0,
        compute_ms=33.0,
        wait_rows_ms=2.0,
        wait_reductions_ms=7.0,
        rows_fetched=210.0,  # of both trainers
        rows_written_back=110.0,
        rows_reduced=300.0,
    )


def test_one_trainer_reduces_nothing() -> None:
    events = [progress(40, trainer(40, 2, 0, 100, 50))]
    assert StepFigures.of_run(events, StepRange(20, 60, 80)).rows_reduced == 0


def test_the_median_is_taken_of_each_figure() -> None:
    runs = [replace(FIGURES, step_ms=step, wait_rows_ms=wait) for step, wait in ((50, 3), (52, 1), (90, 2))]
    assert StepFigures.median(runs) == replace(FIGURES, step_ms=52, wait_rows_ms=2)


def test_trainers_of_one_host_share_its_link_for_rows_alone() -> None:
    assert Traffic.of_step(FIGURES, RECORD, 1000, 2, spread=False) == Traffic(900 * 36, 0.0)
    written_more = replace(FIGURES, rows_written_back=1000.0)
    assert Traffic.of_step(written_more, RECORD, 1000, 2, spread=False) == Traffic(1000 * 36, 0.0)


@pytest.mark.parametrize(("trainers", "share"), [(2, 1.0), (4, 1.5)])
def test_sums_of_spread_trainers_cross_links(trainers: int, share: float) -> None:
    """Of T trainers each sends 2 (T - 1) / T of what is summed: 500 rows of 32 bytes and 10,000 dense weights."""
    reductions = share * (500 * 32 + 40_000)
    own = 900 * 36 / trainers
    assert Traffic.of_step(FIGURES, RECORD, 10_000, trainers, spread=True) == Traffic(own, reductions)


def test_the_servers_link_may_be_the_busiest() -> None:
    few_sums = replace(FIGURES, rows_reduced=10.0)
    assert Traffic.of_step(few_sums, RECORD, 100, 4, spread=True) == Traffic(900 * 36, 0.0)
    assert Traffic.of_step(few_sums, RECORD, 100, 4, spread=True, server_hosts=2) == Traffic(450 * 36, 0.0)


def test_a_single_trainer_sends_no_sums() -> None:
    assert Traffic.of_step(FIGURES, RECORD, 10_000, 1, spread=True) == Traffic(900 * 36, 0.0)


def test_time_on_the_link() -> None:
    assert Traffic(1e6, 0.25e6).link_ms(125e6) == pytest.approx(10.0)
    assert Traffic(1e6, 0.0).link_ms(math.inf) == 0.0
