"""The oracle's main loop: read ahead, plan, send."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import NamedTuple

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.plan_channel import PlanSender
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.exchange_grid import choose_grid
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.groups import slots_by_group
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.stop_request import NeverStopped, StopRequest
from bagpipe_hpc.run.watch import Watch
from bagpipe_hpc.telemetry.trace import Trace

log = logging.getLogger(__name__)

_ADVANCE_EVERY_S = 1e-3
"""Between looks at plans that are being sent, while the next one is made: many MPIs move large ones on only then."""


class _Planned(NamedTuple):
    """A plan, and the shared slots that the planner then had in use beyond those that were expected to be."""

    plan: BatchPlan
    outgrown: int


def run_oracle(
    run: Run,
    need: CacheNeed,
    comms: Communicators,
    timeout_s: float,
    trace: Trace,
    stop: StopRequest | NeverStopped,
) -> None:
    """Plan every batch of the run and send the plans, held back by the slowest trainer; one plan is made meanwhile.

    When the run is asked to stop, the next segment is the last and has no batch: trainers see that from its closing
    plan, which comes before the segment's last batch. It is not cut within a segment, since the cache was measured for
    whole ones: a row that another trainer would have used after the cut would need a private slot now.

    Training that may end for want of better evaluations ends in the same way. The trainers alone know when, so after
    each evaluation that counts, nothing more is planned until they say whether training goes on.

    Args:
        run: the schedule to plan, its batches and its policy.
        need: the window and the cache's capacities.
        comms: this rank's communicators.
        timeout_s: longest wait for a trainer to finish a batch.
        trace: this rank's timeline.
        stop: whether the run is asked to stop.
    """
    window = need.window
    policy = run.policy(comms.layout.trainers)
    planner = policy.planner(window, need.groups)
    log.info("planner state: %.1f MB for %d rows", planner.size().state_bytes / 1e6, run.total_rows)
    if run.config.cache.sharing == "home":
        log.info("%s", choose_grid(run.config.cache.exchange, comms.layout.trainers))
    # A mover that has retired group c wants the plans up to c + L; two groups more keep it from waiting for them.
    sender = PlanSender(comms.planning, window.lookahead + 2 * window.group + 1, timeout_s)
    watch = Watch(run, policy.whole)
    ends = False
    late = outgrown = 0
    for segment in run.schedule:
        batches = iter(()) if ends or stop.is_asked() else run.batches(segment, run.reader_threads)
        plans = plan_segment(
            planner,
            batches,
            policy.start_slicing(segment),
            training=segment.is_training,
            first_step=segment.first_step,
        )
        planned = 0
        for plan, beyond in _one_ahead(_planned(plans, planner, need, trace), sender):
            late += _is_late(plan, window)
            if not outgrown and (outgrown := beyond):
                log.warning(
                    "batch %d has more copies of rows than the first batches let expect: trainers take memory for %d "
                    "slots more",
                    plan.shared.batch,
                    outgrown,
                )
            policy.require_sound_additions(plan)
            with trace.span("send", batch=plan.shared.batch):
                sender.send(plan)
            planned = plan.shared.batch  # of the closing plan: how many there were
        if planned < segment.batches:
            break
        if segment.shows_rows:
            with trace.span("watch"):
                watch.see(segment, sender.await_weights(watch.rows.size, run.groups[0].width))
            sender.weights_seen()
        ends = segment.may_end and not sender.await_word()
    sender.finish()
    used = sum(slots.total for slots in slots_by_group(planner))
    rows = need.total_rows + (need.reserved_rows if outgrown else 0)
    log.info("cache: %d of %d rows were in use at most; %d batches were fetched late", used, rows, late)
    if stop.is_asked():
        stop.answer()


def _planned(plans: Iterator[BatchPlan], planner: Planner, need: CacheNeed, trace: Trace) -> Iterator[_Planned]:
    """The plans of a segment as they are made."""
    while True:
        with trace.span("plan"), _naming_the_cache(need):
            plan = next(plans, None)
        if plan is None:
            return
        yield _Planned(plan, _beyond(planner, need))


def _one_ahead(planned: Iterator[_Planned], sender: PlanSender) -> Iterator[_Planned]:
    """The same, while a thread makes the next one; plans that are being sent move on meanwhile."""
    with ThreadPoolExecutor(1, "planner") as thread:
        coming: Future[_Planned | None] = thread.submit(next, planned, None)
        while True:
            while wait([coming], _ADVANCE_EVERY_S).not_done:
                sender.advance()
            if (ready := coming.result()) is None:
                return
            coming = thread.submit(next, planned, None)
            yield ready


def _beyond(planner: Planner, need: CacheNeed) -> int:
    """Shared slots that are in use beyond those that were expected to be."""
    groups = zip(slots_by_group(planner), need.groups, strict=True)
    return sum(max(0, used.shared - (own.shared - own.reserved)) for used, own in groups)


def _is_late(plan: BatchPlan, window: Window) -> bool:
    """Whether rows of a batch are fetched later than the window asks for, for want of slots."""
    usual = window.group_before_prefetch(plan.shared.batch)
    return not plan.shared.is_closing and any(group.shared.prefetch_after > usual for group in plan.groups)


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
