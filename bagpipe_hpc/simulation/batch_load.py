"""How much work a plan gives trainers, servers and links: all that a prediction needs to know of a plan."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log2
from typing import NamedTuple

import numpy as np

from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.exchange import Flow, Kind
from bagpipe_hpc.plan.plan_record import PlanRecord
from bagpipe_hpc.plan.slices import slice_bounds


class Hop(NamedTuple):
    """What the busiest trainer sends or takes in at once, of rows of one kind.

    Attributes:
        rows: how many, counted as rows of float32 numbers.
        messages: most messages that they take, each way.
    """

    rows: float
    messages: int


_WEIGHT_BYTES = 4
_OF_TWO_HOSTS = 2
"""Hops of a sum over two hosts: there and back."""

Hops = tuple[Hop, ...]
"""Hops, one after the other: a single one where rows travel directly, two over a grid of trainers."""


@dataclass(frozen=True)
class BatchLoad:
    """One plan's work. A prediction takes all trainers to be alike: each does as much as the one with the most.

    Attributes:
        samples: samples of the global batch; 0 for the closing plan.
        slice_samples: samples of the largest slice.
        prefetch_after: group that must be retired before the batch is fetched.
        retire_group: group whose write-backs start after the batch; 0 for none.
        unique_rows: unique rows of the global batch.
        absent_rows: unique rows that were in no cache.
        fetched: rows that a trainer gets.
        fetched_by_all: rows that all trainers get together; one that several get counts for each.
        written: rows that a trainer puts or adds.
        written_by_all: rows that all trainers put or add together.
        reduced_now: rows whose gradients are summed before the next batch starts.
        reduced_later: rows whose gradients are summed behind the next batch.
        plan_bytes: bytes that the oracle sends.
        plan_bytes_in: bytes that a trainer receives; the most of any trainer.
        now_home: gradients that go home before the next batch starts. This and the next three are empty where rows are
            replicated.
        next_copies: copies that are sent before the next batch starts.
        later_home: gradients that go home behind the next batch.
        rest_copies: copies for this batch that come behind the batch before.
        now_over_hosts: sums of rows that are held once a host, on their way over the hosts and back, before the next
            batch starts.
        later_over_hosts: the same behind the next batch.
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
    reduced_now: float
    reduced_later: float
    plan_bytes: int
    plan_bytes_in: int = 0
    now_home: Hops = ()
    next_copies: Hops = ()
    later_home: Hops = ()
    rest_copies: Hops = ()
    now_over_hosts: Hops = ()
    later_over_hosts: Hops = ()

    @property
    def rows_exchanged(self) -> float:
        """Rows that a trainer sends to others, including those that it passes on."""
        of_homes = (self.now_home, self.next_copies, self.later_home, self.rest_copies)
        over_hosts = (self.now_over_hosts, self.later_over_hosts)  # a host sends both ways; the first and last, one way
        return sum(hop.rows for hops in of_homes for hop in hops) + sum(
            hop.rows for hops in over_hosts for hop in hops[: 1 if len(hops) == _OF_TWO_HOSTS else 2]
        )

    def with_gradients_of(self, number_bytes: int) -> "BatchLoad":
        """The same load, with gradients of rows counted as float32 rows of as many bytes.

        Args:
            number_bytes: bytes of a number of a gradient that travels between trainers.
        """
        share = number_bytes / _WEIGHT_BYTES
        home = (self.now_home, self.later_home)
        now_home, later_home = (tuple(Hop(hop.rows * share, hop.messages) for hop in hops) for hops in home)
        return replace(
            self,
            reduced_now=self.reduced_now * share,
            reduced_later=self.reduced_later * share,
            now_home=now_home,
            later_home=later_home,
        )

    @classmethod
    def of_plan(cls, plan: BatchPlan) -> "BatchLoad":
        """Count the work of a plan."""
        shared, trainers = plan.shared, plan.trainers
        parts = [_bytes(part) for part in trainers]
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
            plan_bytes=broadcast_copies(len(trainers)) * _bytes(shared) + sum(parts),
            plan_bytes_in=_bytes(shared) + max(parts),
            **_exchanged(plan),
            **_over_hosts(plan),
        )


def loads_of(plans: Iterable[BatchPlan]) -> Iterator[BatchLoad]:
    """The loads of a segment's plans."""
    return map(BatchLoad.of_plan, plans)


def broadcast_copies(receivers: int) -> int:
    """Copies that the root of a broadcast over a binomial tree sends by itself."""
    return ceil(log2(receivers + 1))


def _slice_samples(plan: BatchPlan) -> list[int]:
    """Samples of each trainer."""
    default = [last - first for first, last in pairwise(slice_bounds(plan.shared.samples, len(plan.trainers)))]
    return [
        size if part.samples is None else part.samples.size for part, size in zip(plan.trainers, default, strict=True)
    ]


def _exchanged(plan: BatchPlan) -> dict[str, Hops]:
    """The hops of each kind of rows between trainers; empty where rows are replicated."""
    parts = [own.counts for part in plan.trainers if (own := part.exchanged)]
    kinds = {
        "now_home": Kind.NOW_GRADIENTS,
        "next_copies": Kind.NEXT_COPIES,
        "later_home": Kind.LATER_GRADIENTS,
        "rest_copies": Kind.REST_COPIES,
    }
    return {name: _hops([part.flow(kind) for part in parts]) for name, kind in kinds.items()} if parts else {}


def _over_hosts(plan: BatchPlan) -> dict[str, Hops]:
    """The hops of sums of rows that are held once a host: a message from each host to the next, and as many back."""
    hosted = [own.hosted for part in plan.trainers if (own := part.exchanged)]
    if not hosted or not hosted[0].of_host:
        return {}
    messages = 2 * (len(hosted) // hosted[0].of_host - 1)
    most = max(of.now_rows for of in hosted), max(of.later_rows for of in hosted)
    return dict(zip(("now_over_hosts", "later_over_hosts"), [(Hop(rows, 1),) * messages for rows in most], strict=True))


def _hops(flows: Sequence[Flow]) -> Hops:
    """The hops within rows of the grid, then within its columns; embedding rows that stay in place do not count."""
    grid = flows[0].grid
    rows, columns = np.arange(grid.rows), np.arange(grid.columns)
    sent = np.stack([flow.to for flow in flows]).reshape(*grid, *grid)  # by row and column of both ends
    across, down = sent.copy(), sent.copy()
    across[:, columns, :, columns] = 0
    down[rows, :, rows, :] = 0
    first = max(across.sum((2, 3)).max(), across.sum((1, 2)).max())  # by sender, and by trainer that passes on
    second = max(down.sum((1, 2)).max(), down.sum((0, 1)).max())  # by trainer that passes on, and by receiver
    found = ((int(first), grid.columns - 1), (int(second), grid.rows - 1))
    return tuple(Hop(count, min(count, others)) for count, others in found if others)


def _bytes(part: PlanRecord) -> int:
    """The size of the encoded part, without its header of a few numbers."""
    arrays = (getattr(part, name) for name in (*part.ARRAYS, *part.OPTIONAL))
    return sum(int(array.nbytes) for array in arrays if array is not None)
