"""A trainer's pace, from the records of a measured run."""

import math
import statistics
from collections.abc import Iterable
from typing import Any


def compute_s_per_sample(events: Iterable[dict[str, Any]], batch_size: int, per_step_s: float = 0.0) -> float:
    """A trainer's time for a sample of its slice, from the lines of a run's `metrics.jsonl`.

    All time counts except the wait for rows. Most of the time in sums is spent waiting for a trainer that had more to
    do or a busier core, and a prediction has no other source for that. So the run should be one in which sums
    themselves are cheap: with one trainer, or with all trainers on one host. The first record is left out where there
    are others, since its steps warm up; the median over the records keeps out a moment of other load.

    Args:
        events: the run's events.
        batch_size: samples of its global batch.
        per_step_s: part of a step's time that does not depend on its samples.

    Returns:
        Seconds for a sample.

    Raises:
        ValueError: the run has recorded no step, what it recorded is damaged, or its steps took less than `per_step_s`.
    """
    of_records: list[float] = []
    slices: list[float] = []
    try:
        for of_all in (event["of_trainers"] for event in events if event["event"] == "progress"):
            of_records.append(of_all["mean"]["total_ms"] - of_all["mean"]["wait_rows_ms"])
            slices.append(batch_size / of_all["number"])
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise ValueError(
            f"its records of training steps are damaged, or an earlier version's ({error!r}): measure once more"
        ) from None
    if not of_records:
        raise ValueError("the run has recorded no training step")
    step_s = statistics.median(of_records[1:] or of_records) * 1e-3
    if not 0 < step_s < math.inf:
        raise ValueError(f"a step took {step_s} s, as it recorded")
    if step_s <= per_step_s:
        raise ValueError(f"its steps took {step_s * 1e6:.0f} us, which --compute-us-per-step leaves no sample of")
    return (step_s - per_step_s) / slices[0]
