"""The oracle's main loop: read ahead, plan, send."""

import logging

from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.plan_channel import PlanSender
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.stop_request import NeverStopped, StopRequest
from bagpipe_hpc.telemetry.trace import Trace

log = logging.getLogger(__name__)


def run_oracle(
    run: Run,
    need: CacheNeed,
    comms: Communicators,
    timeout_s: float,
    trace: Trace,
    stop: StopRequest | NeverStopped,
) -> None:
    """Plan every batch of the run and send the plans, held back by the slowest trainer.

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
    # A mover that has retired group c wants the plans up to c + L; two groups more keep it from waiting for them.
    sender = PlanSender(comms.planning, window.lookahead + 2 * window.group + 1, timeout_s)
    ends = False
    for segment in run.schedule:
        batches = iter(()) if ends or stop.is_asked() else run.batches(segment, run.reader_threads)
        plans = plan_segment(
            planner,
            batches,
            policy.start_slicing(),
            training=segment.is_training,
            first_step=segment.first_step,
        )
        planned = 0
        while True:
            with trace.span("plan"):
                plan = next(plans, None)
            if plan is None:
                break
            policy.require_sound_additions(plan)
            with trace.span("send", batch=plan.shared.batch):
                sender.send(plan)
            planned = plan.shared.batch  # of the closing plan: how many there were
        if planned < segment.batches:
            break
        ends = segment.may_end and not sender.await_word()
    sender.finish()
    if stop.is_asked():
        stop.answer()
