"""What a plan asks of trainers, servers and links, in numbers: all that a prediction needs of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log2

import numpy as np

from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.plan_record import PlanRecord
from bagpipe_hpc.plan.slices import slice_bounds


@dataclass(frozen=True)
class BatchLoad:
    """One plan's work. Trainers are alike, so what one of them does is that of the one with the most.

    Attributes:
        samples: of the global batch; 0 for the closing plan.
        slice_samples: of the trainer with the most.
        prefetch_after: group that must be retired before the batch is fetched.
        retire_group: group whose write-backs start after the batch; 0 for none.
        unique_rows: of the global batch.
        absent_rows: unique rows that were in no cache.
        fetched: rows that a trainer gets.
        fetched_by_all: rows that all trainers get, each counted.
        written: rows that a trainer puts or adds.
        written_by_all: rows that all trainers put or add.
        reduced_now: rows whose gradients are summed before the next batch starts.
        reduced_later: rows whose gradients are summed behind the next batch.
        plan_bytes: what the oracle sends.
        now_home: rows whose gradients a trainer sends home, or takes in, before the next batch starts; so are the next
            three. Those of the trainer with the most; 0 where rows are replicated.
        next_copies: rows of which it then sends or takes in copies.
        later_home: rows whose gradients go home behind the next batch.
        rest_copies: rows of which copies come for this batch behind the one before.
    """

    samples: int
    slice_samples: int
    prefetch_after: int
    retire_group: int
    unique_rows: int
    absent_rows: int
    fetched: int
    fetched_by_all: int
    written: int
    written_by_all: int
    reduced_now: int
    reduced_later: int
    plan_bytes: int
    now_home: int = 0
    next_copies: int = 0
    later_home: int = 0
    rest_copies: int = 0

    @classmethod
    def of_plan(cls, plan: BatchPlan) -> "BatchLoad":
        """Count a plan."""
        shared, trainers = plan.shared, plan.trainers
        fetched = [shared.fetch_rows.size + part.fetch_rows.size for part in trainers]
        written = [part.rows_written for part in trainers]
        return cls(
            samples=shared.samples,
            slice_samples=max(_slice_samples(plan)),
            prefetch_after=shared.prefetch_after,
            retire_group=shared.retire_group,
            unique_rows=shared.unique_rows,
            absent_rows=shared.fetched_rows,
            fetched=max(fetched),
            fetched_by_all=sum(fetched),
            written=max(written),
            written_by_all=sum(written),
            reduced_now=shared.now_slots.size,
            reduced_later=shared.later_slots.size,
            plan_bytes=broadcast_copies(len(trainers)) * _bytes(shared) + sum(map(_bytes, trainers)),
            **_exchanged(plan),
        )


def loads_of(plans: Iterable[BatchPlan]) -> Iterator[BatchLoad]:
    """The loads of a segment's plans."""
    return map(BatchLoad.of_plan, plans)


def broadcast_copies(receivers: int) -> int:
    """Copies that the root of a broadcast sends itself, along a binomial tree."""
    return ceil(log2(receivers + 1))


def _slice_samples(plan: BatchPlan) -> list[int]:
    """Samples of each trainer."""
    default = [last - first for first, last in pairwise(slice_bounds(plan.shared.samples, len(plan.trainers)))]
    return [
        size if part.samples is None else part.samples.size for part, size in zip(plan.trainers, default, strict=True)
    ]


def _exchanged(plan: BatchPlan) -> dict[str, int]:
    """The rows that the busiest trainer sends or takes in, of each kind; none where rows are replicated."""
    parts = [own.counts for part in plan.trainers if (own := part.exchanged)]
    if not parts:
        return {}

    def most(to: str) -> int:
        sent = np.stack([getattr(own, to) for own in parts])
        return int(max(sent.sum(0).max(), sent.sum(1).max()))

    kinds = {"now_home": "now_to", "next_copies": "next_to", "later_home": "later_to", "rest_copies": "rest_to"}
    return {kind: most(to) for kind, to in kinds.items()}


def _bytes(part: PlanRecord) -> int:
    """About the size of the encoded part: without its header of a few numbers."""
    arrays = (getattr(part, name) for name in (*part.ARRAYS, *part.OPTIONAL))
    return sum(int(array.nbytes) for array in arrays if array is not None)
