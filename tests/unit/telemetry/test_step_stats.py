"""Sums over steps: plans are counted, times added up, intervals taken apart."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.plan.batch_plan import GroupPlan, ReceivedPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.exchange import ExchangeCounts, Hosted
from bagpipe_hpc.telemetry import step_stats
from bagpipe_hpc.telemetry.step_stats import StepStats


def plan(samples: int, unique: int, fetched: int, now: int, later: int, private: int) -> ReceivedPlan:
    """A plan with lists of the given lengths; this trainer fetches 3 shared and 2 own rows, and writes 4 back."""
    lists: dict[str, Any] = {name: np.empty(0, dtype) for name, dtype in SharedPlan.ARRAYS.items()}
    lists |= {"now_slots": np.arange(now), "later_slots": np.arange(later), "fetch_rows": np.arange(3)}
    shared = SharedPlan(0, samples, 0, 0, unique, fetched, **lists)
    own: dict[str, Any] = {name: np.empty(0, dtype) for name, dtype in TrainerPlan.ARRAYS.items()}
    own |= {"private_slots": np.arange(private), "fetch_rows": np.arange(2), "write_back_rows": np.arange(4)}
    return ReceivedPlan((GroupPlan(shared, TrainerPlan(**own)),))


def test_plans_are_added_up() -> None:
    stats = StepStats()
    stats.count_plan(plan(samples=8, unique=20, fetched=20, now=5, later=9, private=6))
    stats.count_plan(plan(samples=4, unique=20, fetched=10, now=1, later=16, private=3))
    assert stats == StepStats(
        steps=2,
        samples=12,
        unique_rows=40,
        fetched_rows=30,
        reduced_now=6,
        reduced_later=25,
        private=9,
        rows_fetched=10,
        rows_written_back=8,
    )
    assert stats.hit_rate == 0.25


def test_added_rows_are_written_back() -> None:
    ((shared, own),) = plan(samples=8, unique=20, fetched=20, now=5, later=9, private=6).groups
    stats = StepStats()
    stats.count_plan(ReceivedPlan((GroupPlan(shared, replace(own, add_rows=np.arange(3))),)))
    assert (stats.rows_written_back, stats.rows_added) == (4 + 3, 3)


def test_what_trainers_exchange_is_counted() -> None:
    """Rows that a home sums count as reduced; copies that came, gradients that went, and what went through."""
    ((shared, own),) = plan(samples=8, unique=20, fetched=20, now=0, later=0, private=6).groups
    none, two, one = np.zeros(2, int), np.asarray([0, 2]), np.asarray([0, 1])
    counts = ExchangeCounts(3, 1, 0, 9, 1, two, two, one, one, none, two, none, one, np.arange(8).reshape(4, 1, 2))
    arrays = {"copy_slots": np.arange(3), "lent_slots": np.arange(2), "summed_slots": np.arange(7)}
    arrays |= {"sum_places": np.arange(3), "sent_slots": np.empty(0)}
    stats = StepStats()
    stats.count_plan(ReceivedPlan((GroupPlan(shared, replace(own, exchange=counts.encode(), **arrays)),)))
    assert (stats.reduced_now, stats.reduced_later, stats.private) == (3, 4, 6)
    assert (stats.copied, stats.sent_home, stats.relayed, stats.over_hosts) == (3, 3, 28, 0)
    of_hosts = replace(own, exchange=counts.encode(), **arrays, hosted=Hosted(2, 2, 3).encode())
    stats.count_plan(ReceivedPlan((GroupPlan(shared, of_hosts),)))
    assert (stats.reduced_now, stats.reduced_later, stats.over_hosts) == (6, 8, 5)


def test_without_rows_nothing_was_hit() -> None:
    assert StepStats().hit_rate == 0.0


def test_times_are_added_up_even_where_the_body_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.0, 20.0, 20.5])
    monkeypatch.setattr(step_stats.time, "perf_counter", lambda: next(clock))
    stats = StepStats()
    with stats.timed("wait_rows_s"):
        pass
    with pytest.raises(ZeroDivisionError), stats.timed("wait_rows_s"):
        raise ZeroDivisionError
    assert stats == StepStats(wait_rows_s=2.5)


def test_an_interval_is_what_came_since_the_copy() -> None:
    names = list(asdict(StepStats()))
    before = StepStats(**{name: number for number, name in enumerate(names, 1)})
    stats = before.copy()
    for number, name in enumerate(names, 1):
        setattr(stats, name, getattr(stats, name) + number * 10)
    assert stats.since(before) == StepStats(**{name: number * 10 for number, name in enumerate(names, 1)})
    assert before == StepStats(**{name: number for number, name in enumerate(names, 1)})


def test_means_are_per_step_and_in_milliseconds() -> None:
    stats = StepStats(
        steps=4, total_s=2.0, wait_rows_s=0.5, wait_reductions_s=0.25, reduced_now=8, reduced_later=2, private=6
    )
    stats.rows_fetched, stats.rows_written_back = 12, 1
    assert stats.per_step() == {
        "total_ms": 500.0,
        "compute_ms": 312.5,
        "wait_rows_ms": 125.0,
        "wait_reductions_ms": 62.5,
        "reduced_now": 2.0,
        "reduced_later": 0.5,
        "private": 1.5,
        "rows_fetched": 3.0,
        "rows_written_back": 0.25,
        "copied": 0.0,
        "sent_home": 0.0,
        "relayed": 0.0,
        "rows_added": 0.0,
        "over_hosts": 0.0,
    }


def test_means_of_no_steps_are_zero() -> None:
    assert set(StepStats().per_step().values()) == {0.0}
