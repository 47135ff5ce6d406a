"""What a policy's plans ask of a trainer: rows and bytes for a batch, exactly, without any rank.

Runs move the rows that their plans name, so these are also the counts of a run; `comparison` checks that.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan, TrainerPlan
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.simulation.batch_load import broadcast_copies

MOVED = {
    "fetched": "fetched",
    "written": "written back",
    "added": "added",
    "now": "now",
    "later": "later",
    "copied": "copied",
    "sent_home": "sent home",
}
"""What a trainer does with rows, and the headings of a run's table for it: gets, puts and adds at servers; sums before
and behind the next batch, over all trainers or at the rows' homes; copies from other trainers, and gradients to
them."""

_SHORT_BYTES = 2
"""Bytes of a number of a gradient that travels in 16 bits (`train.row_sums`)."""
_NUMBER_BYTES = 4
"""Bytes of a row's number, which a trainer sends to a server with each row that it fetches or writes."""
_AT_SERVERS = ("fetched", "written", "added")


@dataclass(frozen=True)
class Traffic:
    """Means over training batches and trainers.

    Attributes:
        rows: rows of each kind, by the names of `MOVED`.
        bytes: bytes of these rows on the link of a trainer, both ways counted. A sum over all trainers travels as
            shares, there and back. Of what a home sums, the gradients of other trainers are counted as sent home. Sums
            of rows that are held once a host go from host to host, there and back, in 32 bits.
        hit_rate: share of the unique rows of batches that no trainer fetches.
        window: batches that the planner looks ahead, the current one included.
        cache_rows: slots of a trainer's caches.
        plan_bytes: bytes of a whole plan, with the parts of all trainers.
        planner_ms: processor time to decide on a batch and to write its plan, in all threads.
        batches: number of planned batches.
        oracle_bytes: bytes of a plan that the oracle sends itself: the shared part goes to some trainers, who pass it
            on.
        number_bytes: bytes of the numbers of rows that a trainer sends to servers.
    """

    rows: dict[str, float]
    bytes: dict[str, float]
    hit_rate: float
    window: int
    cache_rows: int
    plan_bytes: float
    planner_ms: float
    batches: int
    oracle_bytes: float = 0.0
    number_bytes: float = 0.0

    @property
    def total_bytes(self) -> float:
        """Bytes of all kinds."""
        return sum(self.bytes.values())


def measure_traffic(run: Run, trainers: int, most_batches: int = 0) -> Traffic:
    """Plan the training batches of a run.

    Args:
        run: the run, with checked settings.
        trainers: number of trainers T.
        most_batches: most batches of each segment; 0 for all.

    Raises:
        CapacityError, ConfigError: as for a run that starts.
    """
    policy = run.policy(trainers)
    need = choose_window(run, trainers)
    planner = policy.planner(need.window, need.groups)
    counted = TrafficCount(run, trainers)
    for segment in run.schedule:
        if segment.is_training:
            batches = counted.reading(islice(run.batches(segment), most_batches or None))
            plans = plan_segment(planner, batches, policy.start_slicing(), policy.keeping(segment))
            for plan in counted.planning(plans):
                counted.add(plan)
    return counted.traffic(need.window.lookahead, need.total_rows)


class TrafficCount:
    """Adds up plans, and the processor time of planning without reading.

    Args:
        run: the run of these plans.
        trainers: number of trainers T.
    """

    def __init__(self, run: Run, trainers: int) -> None:
        self._trainers = trainers
        self._widths = [4 * group.width for group in run.groups]
        self._summed = _SHORT_BYTES if run.config.train.row_sums != "float32" else 4
        self._records = [group.record.bytes for group in run.groups]
        self._rows = dict.fromkeys(MOVED, 0)
        self._bytes = dict.fromkeys(MOVED, 0.0)
        self._unique = self._absent = self._batches = self._plan_bytes = self._oracle_bytes = 0
        self._copies = broadcast_copies(trainers)
        self._reading_s = self._all_s = 0.0

    def reading(self, batches: Iterator[Bags]) -> Iterator[Bags]:
        """Pass batches on; the time until they come does not count as planning."""
        while True:
            start_s = time.process_time()
            rows = next(batches, None)
            self._reading_s += time.process_time() - start_s
            if rows is None:
                return
            yield rows

    def planning(self, plans: Iterator[BatchPlan]) -> Iterator[BatchPlan]:
        """Pass plans on; the time until they come counts as planning."""
        while True:
            start_s = time.process_time()
            plan = next(plans, None)
            self._all_s += time.process_time() - start_s
            if plan is None:
                return
            yield plan

    def add(self, plan: BatchPlan) -> None:
        """Count a plan; a closing plan has no samples, but writes back."""
        self._batches += not plan.shared.is_closing
        for number, group in enumerate(plan.groups):
            shared = group.shared
            self._unique += shared.unique_rows
            self._absent += shared.fetched_rows
            for_all, *for_each = (np.asarray(part).nbytes for part in group.encode())
            self._plan_bytes += for_all + sum(for_each)
            self._oracle_bytes += self._copies * for_all + sum(for_each)
            for own in group.trainers:
                of_all = {
                    "fetched": shared.fetch_rows.size,
                    "now": shared.now_slots.size,
                    "later": shared.later_slots.size,
                }
                self._count(number, of_all)
                self._count(number, _own(own))
                if (exchange := own.exchanged) is not None and (of_host := exchange.hosted.of_host):
                    hosts = self._trainers // of_host
                    over_hosts = self._widths[number] * 2 * (hosts - 1) / hosts
                    self._bytes["now"] += exchange.hosted.now_rows * over_hosts
                    self._bytes["later"] += exchange.hosted.later_rows * over_hosts

    def _count(self, group: int, rows: dict[str, int]) -> None:
        both_ways = 2 * (self._trainers - 1) / self._trainers
        record, width = self._records[group], self._widths[group]
        gradient = width // 4 * self._summed
        bytes_of = {"fetched": record, "written": record, "added": record, "copied": width, "sent_home": gradient}
        summed = 0.0 if "sent_home" in rows else gradient * both_ways
        for kind, count in rows.items():
            self._rows[kind] += count
            self._bytes[kind] += count * bytes_of.get(kind, summed)

    def traffic(self, lookahead: int, cache_rows: int) -> Traffic:
        """The means."""
        batches = max(1, self._batches)
        each = batches * self._trainers
        return Traffic(
            rows={kind: count / each for kind, count in self._rows.items()},
            bytes={kind: count / each for kind, count in self._bytes.items()},
            hit_rate=1.0 - self._absent / self._unique if self._unique else 0.0,
            window=lookahead,
            cache_rows=cache_rows,
            plan_bytes=self._plan_bytes / batches,
            planner_ms=1e3 * max(0.0, self._all_s - self._reading_s) / batches,  # two clocks
            batches=self._batches,
            oracle_bytes=self._oracle_bytes / batches,
            number_bytes=sum(_NUMBER_BYTES * self._rows[kind] for kind in _AT_SERVERS) / each,
        )


def _own(part: TrainerPlan) -> dict[str, int]:
    """Rows that one trainer moves besides those that all move."""
    rows = {"fetched": part.fetch_rows.size, "written": part.write_back_rows.size}
    if part.add_rows is not None:
        rows["added"] = part.add_rows.size
    if (exchange := part.exchanged) is not None:
        counts = exchange.counts
        rows["now"], rows["later"] = exchange.now.slots.size, exchange.later.slots.size
        rows["copied"] = int(counts.next_from.sum() + counts.rest_from.sum())
        rows["sent_home"] = int(counts.now_to.sum() + counts.later_to.sum())
    return rows
