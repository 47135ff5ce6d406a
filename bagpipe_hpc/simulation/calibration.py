"""What a prediction takes from the settings and from the records of a measured run."""

import statistics
from collections.abc import Sequence
from typing import Any


def compute_s_per_sample(events: Sequence[dict[str, Any]], batch_size: int) -> float:
    """A trainer's time for a sample of its slice, from the lines of a run's `metrics.jsonl`.

    All that is not waiting for rows counts: of the time in sums, most is waiting for a trainer that had more to do or
    less of its core, which a prediction does not know otherwise. The run should be one in which sums themselves are
    cheap: of one trainer, or of trainers on one host. The first record is left out where there are others, since its
    steps warm up; the median over the records keeps a moment of other load out.

    Raises:
        ValueError: the run has recorded no step.
    """
    records = [event["trainers"] for event in events if event["event"] == "progress"]
    if not records:
        raise ValueError("the run has recorded no training step")
    of_records = [
        statistics.fmean(trainer["total_ms"] - trainer["wait_rows_ms"] for trainer in trainers) for trainers in records
    ]
    slice_samples = batch_size / len(records[0])
    return statistics.median(of_records[1:] or of_records) * 1e-3 / slice_samples
