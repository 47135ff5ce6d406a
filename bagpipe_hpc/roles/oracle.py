"""The oracle's main loop: take plans from their source, send them."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.cluster.trainer_hosts import unlike_plan
from bagpipe_hpc.mpi.plan_channel import PlanSender
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.addition_order import in_rank_order
from bagpipe_hpc.planning.policy_choice import policy_class
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.roles.context import RoleContext
from bagpipe_hpc.roles.plan_sources import Planned, open_source
from bagpipe_hpc.roles.request_waits import RequestWaits, open_watch
from bagpipe_hpc.run.feedback.hearing import Hearing
from bagpipe_hpc.run.output.stop_request import NeverStopped, StopRequest
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)

_ADVANCE_EVERY_S = 1e-3
"""Between looks at plans that are being sent, while the next one is made: many MPIs move large ones on only then."""


def run_oracle(context: RoleContext, stop: StopRequest | NeverStopped) -> None:
    """Send the plan of every batch of the run, held back by the slowest trainer; the next one is made meanwhile.

    When the run is asked to stop, the next segment is the last and has no batch: trainers see that from its closing
    plan, which comes before the segment's last batch. It is not cut within a segment, since the cache was measured for
    whole ones: a row that another trainer would have used after the cut would need a private slot now. A request that
    comes before the first training segment waits for its end: a job that is always warned early gets ahead, too.

    Training that may end for want of better evaluations ends in the same way. The trainers alone know when, so after
    each evaluation that counts, nothing more is planned until they say whether training goes on. So it is where the
    policy orders samples by evaluations.

    Args:
        context: of this rank.
        stop: whether the run is asked to stop.
    """
    run, need, comms, trace = context.run, context.need, context.comms, context.trace
    source = open_source(run, need, comms.layout.trainers, trace)
    _see_hosts(context)
    waits = RequestWaits(open_watch(run.config.kernels.backend))
    sender = PlanSender(comms.planning, need.window.plans_ahead, context.checkpoints_timeout_s, waits.until_complete)
    adds_in_order = run.config.train.deterministic and policy_class(run.config.policy.name).adds_rows
    hearing = Hearing(run, speaks=True)
    ends = has_trained = False
    late = outgrown = 0
    for segment in map(hearing.told, run.schedule):
        planned = 0
        is_last = ends or (has_trained and stop.is_asked())
        for plan, beyond in _one_ahead(source.plans(segment, ends=is_last), sender):
            late += _is_late(plan, need.window)
            if not outgrown and (outgrown := beyond):
                log.warning(
                    "batch %d or a later one has more copies of rows than the first batches let expect: trainers take "
                    "memory for %d slots more",
                    plan.shared.batch,
                    outgrown,
                )
            if adds_in_order:
                plan = in_rank_order(plan)  # noqa: PLW2901
            with trace.span("send", batch=plan.shared.batch):
                sender.send(plan)
            trace.step = segment.first_step + (plan.shared.batch if segment.is_training else 0)
            planned = plan.shared.batch  # of the closing plan: how many there were
        if not planned:
            break
        has_trained |= segment.is_training
        if remark := segment.passed_over(planned):
            log.info("%s", remark)
        if segment.shows_rows and (watch := source.watch):
            with trace.span("watch"):
                watch.see(segment, sender.await_weights(watch.rows.size, run.groups[0].width))
            sender.weights_seen()
        ends = False
        if segment.may_end or segment.is_heard:
            word = sender.await_word()
            ends = not word.goes_on
            if segment.is_heard:
                hearing.hear(segment, word.log_loss)
    sender.finish()
    rows = need.total_rows + (need.reserved_rows if outgrown else 0)
    told = f"{counted(late, 'batch')} {'was' if late == 1 else 'were'} fetched late"
    log.info("cache: %d of %d rows were in use at most; %s", source.used_slots(), rows, told)
    source.close()
    if stop.is_asked():
        stop.answer()


def _see_hosts(context: RoleContext) -> None:
    """Say so where trainers are on other hosts than those that a plan of rows is made for."""
    run, comms = context.run, context.comms
    trainers = comms.layout.trainers
    if of_host := run.policy(trainers).whole.trainers_of_host:
        of_trainers = [comms.hosts[comms.layout.world_rank(Role.TRAINER, number)] for number in range(trainers)]
        if problem := unlike_plan(of_trainers, of_host):
            log.warning("%s", problem)


def _one_ahead(planned: Iterator[Planned], sender: PlanSender) -> Iterator[Planned]:
    """The same, while a thread makes the next one; plans that are being sent move on meanwhile."""
    with ThreadPoolExecutor(1, "planner") as thread:
        coming: Future[Planned | None] = thread.submit(next, planned, None)
        while True:
            while wait([coming], _ADVANCE_EVERY_S).not_done:
                sender.advance()
            if (ready := coming.result()) is None:
                return
            coming = thread.submit(next, planned, None)
            yield ready


def _is_late(plan: BatchPlan, window: Window) -> bool:
    """Whether rows of a batch are fetched later than the window asks for, for want of slots."""
    usual = window.group_before_prefetch(plan.shared.batch)
    return not plan.shared.is_closing and any(group.shared.prefetch_after > usual for group in plan.groups)
