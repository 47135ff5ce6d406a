"""What a trainer is put together from: its threads, its step, and what it tells the others, each made once a run."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch.nn import Parameter

from bagpipe_hpc.checkpointing.protocol import SavingSettings, checkpoint_manifest
from bagpipe_hpc.checkpointing.trainer import TrainerCheckpoints
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.models.sums.contract import DenseSums
from bagpipe_hpc.models.sums.gradient_groups import gradient_groups
from bagpipe_hpc.models.sums.reduction import DenseReducer
from bagpipe_hpc.mpi.evaluation_peers import EvaluationPeers
from bagpipe_hpc.mpi.group_barrier import GroupBarrier
from bagpipe_hpc.mpi.plan_channel import PlanReceiver
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import LONGEST_SLEEP_WITH_CORE_S, Waits
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.preparation.settling.trainer_compute import trainer_device
from bagpipe_hpc.roles.context import RoleContext
from bagpipe_hpc.roles.mover.mover import Mover, MoverSettings
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.roles.trainer.reports import TrainerReports
from bagpipe_hpc.roles.trainer.shared_rows import open_row_sharing
from bagpipe_hpc.roles.trainer.sums_thread import SummedElsewhere, SumsThread
from bagpipe_hpc.rows.updated import UpdatedRows
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.compute_setup import layer_weights_of
from bagpipe_hpc.step.dense.updates import DenseUpdates, may_wait, order_of_sums
from bagpipe_hpc.step.sharing.contract import RowSharing, RowUpdates
from bagpipe_hpc.step.slice_reader import SliceReader
from bagpipe_hpc.step.slice_step import Loop
from bagpipe_hpc.step.train_step import TrainStep
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.step_stats import StepStats

log = logging.getLogger(__name__)


class OtherThreads:
    """The threads beside the compute thread, whose failures end its waits."""

    def __init__(self) -> None:
        self._checks: list[Callable[[], None]] = []

    def add(self, check: Callable[[], None]) -> None:
        """Look at one more; `check` raises what ended it, if anything did."""
        self._checks.append(check)

    def check(self) -> None:
        """Raise what ended one of them, if anything did."""
        for check in self._checks:
            check()


@dataclass(frozen=True)
class TrainerParts:
    """The parts of one trainer, none of them at work yet.

    Attributes:
        compute: model, dense optimizer and caches, on their device.
        threads: the mover, and the thread of sums where there is one.
        receiver: of plans.
        reader: of this trainer's samples.
        rows: how updates of shared rows reach their users.
        mover: brings rows, and writes them back.
        sums_thread: moves sums of dense gradients on; None where the mover does.
        step: a training step.
        record: of the run, on the first trainer; None on others.
        reports: what trainers tell the first.
        checkpoints: this trainer's part in them.
        peers: the other trainers in an evaluation.
    """

    compute: ComputeParts
    threads: OtherThreads
    receiver: PlanReceiver
    reader: SliceReader
    rows: RowSharing
    mover: Mover
    sums_thread: SumsThread | None
    step: TrainStep
    record: Record | None
    reports: TrainerReports
    checkpoints: TrainerCheckpoints
    peers: EvaluationPeers

    @property
    def cache_bytes(self) -> int:
        """Of all caches."""
        return sum(cache.bytes for cache in self.compute.caches)


def open_trainer_parts(
    context: RoleContext,
    windows: Sequence[RowWindow],
    sums: DenseSums,
    pace: MoverPace,
    sums_thread: SumsThread | None,
    loop: Loop,
) -> TrainerParts:
    """Make the parts of a trainer. Collective over: the trainers.

    Args:
        context: of this rank.
        windows: the rows at the servers, of each group of tables.
        sums: of dense gradients over the trainers.
        pace: of its mover.
        sums_thread: moves sums on; None where the mover does.
        loop: computes the loss of each slice.
    """
    run, need, comms, trace = context.run, context.need, context.comms, context.trace
    config, timeout_s, trainers = run.config, context.rows_timeout_s, comms.layout.trainers
    device = trainer_device(run, comms)
    layer_weights = layer_weights_of(config, device, trainers, side_by_side=sums.side_by_side)
    compute = ComputeParts.of(run, device, need.groups, trainers, layer_weights=layer_weights)
    threads, stats, own_slice = OtherThreads(), StepStats(), (comms.role_rank, trainers)
    waits = Waits(timeout_s, threads.check)
    if pace.has_core:  # who waits keeps nobody from its own core, either
        waits = replace(waits, longest_sleep_s=LONGEST_SLEEP_WITH_CORE_S)
    rows = open_row_sharing(config, comms, compute, RowUpdates(compute, stats, trace), waits, pace.ring)
    groups = _groups_of_sums(config, compute, sums)
    ring = (sums_thread or pace).ring
    dense_reducer = DenseReducer(groups, sums, waits=waits, device=compute.device, ring=ring)
    can_wait = layer_weights is not None and may_wait(config, loop)
    dense_updates = DenseUpdates(compute, dense_reducer, groups, stats, trace, can_wait=can_wait)

    has_increments = config.train.full_checkpoint_every > 1
    updated = [UpdatedRows(part) if has_increments else None for part in run.partitions(comms.layout.servers)]
    receiver, reader = PlanReceiver(comms.planning, len(run.groups)), SliceReader(run, *own_slice)
    mover = Mover(
        MoverSettings.of(run, need.window.group, timeout_s),
        receiver,
        [
            RowTraffic(window, cache, group.record.width, own)
            for window, cache, group, own in zip(windows, compute.caches, run.groups, updated, strict=True)
        ],
        GroupBarrier(comms.movers, timeout_s),
        reader,
        trace,
        rows,
        SummedElsewhere() if sums_thread else dense_reducer,
        pace,
    )
    threads.add(mover.check)
    if sums_thread:
        sums_thread.move_on(dense_reducer)
        threads.add(sums_thread.check)

    features, verify = run.model_facts.features, config.debug.verify_rows
    record = context.purpose.record(run, has_cache=True) if comms.role_rank == 0 else None
    parts = TrainerParts(
        compute=compute,
        threads=threads,
        receiver=receiver,
        reader=reader,
        rows=rows,
        mover=mover,
        sums_thread=sums_thread,
        step=TrainStep(compute, rows, stats, dense_updates, features, own_slice, trace, verify=verify),
        record=record,
        reports=TrainerReports(comms, record, stats, trace, timeout_s, threads.check),
        checkpoints=_open_checkpoints(context, compute, updated, record, threads),
        peers=EvaluationPeers(comms.trainers, timeout_s, threads.check),
    )
    _log_cache(need, parts)
    return parts


def _groups_of_sums(config: Config, compute: ComputeParts, sums: DenseSums) -> Sequence[Sequence[Parameter]]:
    """The dense weights whose gradients are summed as one, in the order in which these are complete."""
    groups: Sequence[Sequence[Parameter]] = gradient_groups(compute.model, side_by_side=sums.side_by_side)
    return order_of_sums(groups, compute.layer_weights, config.train) if compute.layer_weights else groups


def _open_checkpoints(
    context: RoleContext,
    compute: ComputeParts,
    updated: Sequence[UpdatedRows | None],
    record: Record | None,
    threads: OtherThreads,
) -> TrainerCheckpoints:
    run, comms = context.run, context.comms
    return TrainerCheckpoints(
        SavingSettings.of(run.config, context.fill_timeout_s),
        partial(checkpoint_manifest, run, compute.arithmetic, comms.layout.servers),
        comms,
        [rows for rows in updated if rows],
        record,
        threads.check,
    )


def _log_cache(need: CacheNeed, parts: TrainerParts) -> None:
    log.info(
        "cache of %d rows (%d shared, %d private), %.1f MB on %s",
        need.total_rows,
        need.shared_rows,
        need.private_rows,
        parts.cache_bytes / 1e6,
        parts.compute.device.torch_device,
    )
