"""The cost of a job's checkpoints is what its metrics say after the first one."""

from typing import Any

from benchmarks.checkpoint.benchmark import JobCost, cost_of


def progress(step: int, time_s: float) -> dict[str, Any]:
    return {"event": "progress", "step": step, "time_s": time_s}


def checkpoint(seconds: float, size: int) -> dict[str, Any]:
    return {"event": "checkpoint", "seconds": seconds, "complete_after_s": 2 * seconds, "bytes": size}


def test_the_first_checkpoint_and_interval_do_not_count() -> None:
    events = [
        progress(10, 5.0),
        checkpoint(9.0, 90_000_000),
        progress(20, 7.0),
        checkpoint(0.25, 1_000_000),
        progress(30, 9.0),
        checkpoint(0.75, 3_000_000),
    ]
    assert cost_of(events, batch_size=100) == JobCost(500.0, 0.5, 1.0, 2.0)
    assert cost_of(events[::2], batch_size=100) == JobCost(500.0)
