"""Where the oracle's plans come from: a planner that reads ahead, or a file that was written before the run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.exchange_grid import OVER_GRID, choose_grid
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.groups import slots_by_group
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.sharing_choice import has_homes
from bagpipe_hpc.preparation.saved_plans import SavedPlans
from bagpipe_hpc.run.feedback.watch import Watch
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.trace import Trace

log = logging.getLogger(__name__)


class Planned(NamedTuple):
    """A plan, and the shared slots that its planner then had in use beyond those that were expected to be."""

    plan: BatchPlan
    outgrown: int


class PlanSource(Protocol):
    """Gives the plans of a run, segment after segment."""

    @property
    def watch(self) -> Watch | None:
        """Shows rows to the policy; None where it cannot ask for any."""

    def plans(self, segment: Segment, *, ends: bool) -> Iterator[Planned]:
        """The plans of a segment; of one without batches where the run is to end."""

    def used_slots(self) -> int:
        """Slots of a trainer's caches that plans have used at most at once."""

    def close(self) -> None:
        """Give back what it holds."""


def open_source(run: Run, need: CacheNeed, trainers: int, trace: Trace) -> PlanSource:
    """The source that a run's settings ask for.

    Args:
        run: its schedule, batches, policy, and `train.plans`.
        need: the window and the cache's capacities.
        trainers: number T.
        trace: this rank's timeline.
    """
    source = SavedSource(run, trainers, trace) if run.config.train.plans else PlannedSource(run, need, trainers, trace)
    cache = run.config.cache
    if has_homes(cache.sharing):
        log.info("%s", choose_grid(cache.exchange, trainers))
    elif cache.exchange == OVER_GRID:
        log.warning(
            "cache.exchange = '%s': it is for rows with one home, and rows are %s", cache.exchange, cache.sharing
        )
    return source


class PlannedSource:
    """Plans as they are made; arguments as for `open_source`."""

    def __init__(self, run: Run, need: CacheNeed, trainers: int, trace: Trace) -> None:
        self._run, self._need, self._trace = run, need, trace
        self._policy = run.policy(trainers)
        self._planner = self._policy.planner(need.window, need.groups)
        log.info("planner state: %.1f MB for %d rows", self._planner.size().state_bytes / 1e6, run.total_rows)
        self.watch: Watch | None = Watch(run, self._policy.whole)

    def plans(self, segment: Segment, *, ends: bool) -> Iterator[Planned]:
        """As `PlanSource.plans`; batches are read when they are asked for."""
        plans = plan_segment(
            self._planner,
            iter(()) if ends else self._run.batches(segment, self._run.reader_threads),
            self._policy.start_slicing(),
            self._policy.keeping(segment),
            training=segment.is_training,
            first_step=segment.first_step,
        )
        while True:
            with self._trace.span("plan"), _naming_the_cache(self._need):
                plan = next(plans, None)
            if plan is None:
                return
            self._policy.require_sound_additions(plan)
            yield Planned(plan, self._beyond())

    def used_slots(self) -> int:
        """As `PlanSource.used_slots`."""
        return sum(slots.total for slots in slots_by_group(self._planner))

    def close(self) -> None:
        """Nothing is to be given back."""

    def _beyond(self) -> int:
        """Shared slots that are in use beyond those that were expected to be."""
        groups = zip(slots_by_group(self._planner), self._need.groups, strict=True)
        return sum(max(0, used.shared - (own.shared - own.reserved)) for used, own in groups)


class SavedSource:
    """Plans that were saved (`train.plans`); arguments as for `open_source`.

    Raises:
        PlanFileError: they are damaged, or of another run.
    """

    def __init__(self, run: Run, trainers: int, trace: Trace) -> None:
        self._saved, self._trace = SavedPlans(run, trainers), trace
        self.watch: Watch | None = None

    def plans(self, segment: Segment, *, ends: bool) -> Iterator[Planned]:
        """As `PlanSource.plans`.

        Raises:
            PlanFileError: they are damaged.
        """
        plans = self._saved.plans(segment, ends=ends)
        while True:
            with self._trace.span("read plan"):
                plan = next(plans, None)
            if plan is None:
                return
            yield Planned(plan, 0)

    def used_slots(self) -> int:
        """As `PlanSource.used_slots`: those of the whole run, for which the plans were made."""
        return self._saved.need.total_rows

    def close(self) -> None:
        """Close the file."""
        self._saved.close()


@contextmanager
def _naming_the_cache(need: CacheNeed) -> Iterator[None]:
    """Say why slots are lacking in the middle of a run, and what cures it."""
    try:
        yield
    except CapacityError as error:
        if need.is_exact:
            raise
        raise CapacityError(
            f"{error}: later batches have many more rows than the first ones, which the cache was measured by; go on "
            "(train.resume=auto) with cache.measure=all"
        ) from error
