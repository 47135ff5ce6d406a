"""Checks a policy without ranks: simulated trainers carry its plans out, and must end in what plain training gives."""

from collections.abc import Sequence

import numpy as np

from bagpipe_hpc.errors import CapacityError, PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.sample_order import SampleOrder, require_each_once
from bagpipe_hpc.planning.capacity import CacheNeed, measure_need
from bagpipe_hpc.planning.checking.executor import PlanExecutor
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policy import Policy, TrainingRows
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window

_BLOCK_ROWS = 16
"""Block size of the order that a policy may change; small, so that few samples have several blocks."""


def check_policy(policy: Policy, batches: Sequence[Bags], wanted: Window = Window(4, 2)) -> CacheNeed:  # noqa: B008 - frozen
    """Let a policy plan a segment, and see that its plans train as they should; call it in the tests of a policy.

    Its order must use every sample once, in each of two epochs. Plans are carried out with exactly the slots that they
    were measured to need. The same batches must give the same plans again. The planner then goes on, as in a run: an
    evaluation must write nothing back, and a second segment of training must train as it should.

    Args:
        policy: the policy to check.
        batches: global rows of each batch.
        wanted: what `lookahead.batches` and `lookahead.group` ask for.

    Returns:
        The slots that it needs for these batches.

    Raises:
        PlanError: a plan cannot be carried out, or ends in other tables; the message names batch, trainer and row. Or
            the order repeats a sample or leaves one out.
    """
    samples = sum(rows.samples for rows in batches)
    for epoch in range(2):
        default = SampleOrder(samples, _BLOCK_ROWS, policy.facts.seed, epoch)
        require_each_once(policy.order(policy.settings, default, policy.facts.training or TrainingRows()))
    total_rows, trainers = policy.facts.total_rows, policy.facts.trainers
    window = policy.window(wanted)
    need = measure_need(policy.planner, window, lambda: iter([batches]), start_slicing=policy.start_slicing)

    def new_planner() -> Planner:
        return policy.planner(need.window, need.shared_rows, need.private_rows)

    def plans(planner: Planner, *, training: bool = True) -> list[BatchPlan]:
        try:
            found = list(plan_segment(planner, batches, policy.start_slicing(), training=training))
        except CapacityError as error:
            measured = f"{need.shared_rows} shared and {need.private_rows} private"
            raise PlanError(f"{error}: {measured} were measured") from error
        for plan in found:
            policy.require_sound_additions(plan)
        return found

    def carry_out(found: list[BatchPlan], *, eager: bool) -> None:
        most_missing = policy.most_missing if policy.adds_rows else None
        executor = PlanExecutor(
            total_rows, trainers, need.shared_rows, need.private_rows, eager=eager, most_missing=most_missing
        )
        executor.run(found, batches)
        wrong = np.flatnonzero(executor.store != executor.wanted_table(batches))
        if wrong.size:
            raise PlanError(
                f"{wrong.size} of {total_rows} rows end otherwise than in plain training, row {wrong[0]} first: "
                "an update was lost, came twice, or read a row too early"
            )

    planner = new_planner()
    trained = plans(planner)
    if policy.writes_apart:
        _require_apart(trained)
    if [_encoded(plan) for plan in plans(new_planner())] != [_encoded(plan) for plan in trained]:
        raise PlanError("the same batches give other plans: a policy may depend on its settings and the batches alone")
    for eager in (True, False):
        carry_out(trained, eager=eager)
    try:
        evaluated, again = plans(planner, training=False), plans(planner)
        carry_out(again, eager=True)
    except PlanError as error:
        raise PlanError(f"in a segment behind another one, which start_segment has to forget: {error}") from error
    if any(part.rows_written for plan in evaluated for part in plan.trainers):
        raise PlanError("an evaluation (training=False) writes rows back, and nobody has updated them")
    return need


def _require_apart(plans: Sequence[BatchPlan]) -> None:
    """Check that no row is put with two groups that may be on their way at the same time.

    The rows of a group are put behind a batch. By then, all groups that this batch or an earlier one waited for are at
    the servers.

    Raises:
        PlanError: a row is.
    """
    group_of: dict[int, int] = {}
    retired = 0
    for plan in plans:
        retired = max(retired, plan.shared.prefetch_after)
        for trainer, part in enumerate(plan.trainers):
            for row in part.write_back_rows.tolist():
                if group_of.get(row, retired) > retired:
                    raise PlanError(
                        f"batch {plan.shared.batch}: trainer {trainer} writes row {row} back, and that of group "
                        f"{group_of[row]} may still be on its way: a policy of which rows are written back and stay "
                        "says writes_apart = False"
                    )
                group_of[row] = plan.shared.retire_group


def _encoded(plan: BatchPlan) -> list[bytes]:
    return [record.encode().tobytes() for record in (plan.shared, *plan.trainers)]
