"""What a prediction takes from the settings and from the records of a measured run."""

import math
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
        ValueError: the run has recorded no step, or what it recorded is damaged.
    """
    try:
        records = [event["trainers"] for event in events if event["event"] == "progress"]
        of_records = [
            statistics.fmean(trainer["total_ms"] - trainer["wait_rows_ms"] for trainer in trainers)
            for trainers in records
        ]
        trainers = [len(record) for record in records]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"its records of training steps are damaged ({error!r})") from None
    if not records:
        raise ValueError("the run has recorded no training step")
    found = statistics.median(of_records[1:] or of_records) * 1e-3 / (batch_size / trainers[0])
    if not 0 < found < math.inf:
        raise ValueError(f"a sample took {found} s, as it recorded")
    return found
