"""Breaks one thing in a running job: a rule (mutants, which a comparison sees) or a part (`faults.py`)."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from bagpipe_hpc import launch
from bagpipe_hpc.cache.row_decay import RowDecay
from bagpipe_hpc.checkpointing.server import ServerCheckpoints, in_place
from bagpipe_hpc.config.rates import RateConfig
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.models.sums.contract import PendingDenseSum
from bagpipe_hpc.models.sums.mpi_sums import MpiSums
from bagpipe_hpc.mpi.rows.host_chain import Add, ChainedSum, Floats, HostChain
from bagpipe_hpc.mpi.rows.transfer import PendingRows
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.plan.batch_plan import TrainerPlan
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.segment_planner import measure_segment
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.roles.mover.mover import Mover
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.rows.updated import UpdatedRows
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step import row_gradients
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.sharing.home_sums import HomeSums
from bagpipe_hpc.step.sharing.replicated_rows import DelayedUpdate, ReplicatedRows
from bagpipe_hpc.step.slice_step import SliceStep
from bagpipe_hpc.step.train_step import TrainStep
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.row_file import SelectedRows
from tests.end_to_end.addition_mutants import ADDITION_MUTANTS, LOOKS_UP_LATE, look_up_late
from tests.end_to_end.faults import FAULTS, Breakage, Patch
from tests.end_to_end.home_mutants import HOME_MUTANTS
from tests.end_to_end.late_mutants import (
    AT_ONCE,
    CLIPPED,
    FIRST_LAYERS,
    IN_SMALL_GROUPS,
    LATE_MUTANTS,
    sum_in_small_groups,
)
from tests.end_to_end.planner_mutants import use_planner
from tests.unit.planning.lookahead import mutants

RESUMED_AT = 18
"""Step that a run goes on from."""


def drop_the_delayed_reduction(patch: Patch) -> None:
    """later(x) is applied with this trainer's own gradients only."""

    def start_delayed(
        _: ReplicatedRows, group: int, slots: torch.Tensor, sums: torch.Tensor, step: int
    ) -> DelayedUpdate:
        own: Any = SimpleNamespace(advance=lambda: None, wait=lambda _: sums)
        return DelayedUpdate(group, slots, own, step)

    patch(ReplicatedRows, "start_delayed", start_delayed)


def prefetch_before_the_barrier(patch: Patch) -> None:
    """Rows are fetched as soon as their plan is there, written back or not."""
    patch(Mover, "_is_admissible", lambda _, plan: not plan.is_closing)


def forget_optimizer_state(patch: Patch) -> None:
    """Write-backs carry weights only: the state goes back to zero."""
    start_put = RowWindow.start_put

    def put_weights(self: RowWindow, rows: np.ndarray, records: np.ndarray) -> PendingRows:
        records[:, -1] = 0.0
        return start_put(self, rows, records)

    patch(RowWindow, "start_put", put_weights)


def lose_a_write_back(patch: Patch) -> None:
    """The first trainer never writes back one row of each group: the next reader gets a stale one."""
    put = RowTraffic.put

    def put_less(self: RowTraffic, plan: TrainerPlan) -> PendingRows:
        plan.write_back_rows[:1] = plan.write_back_rows[1:2]
        plan.write_back_slots[:1] = plan.write_back_slots[1:2]
        return put(self, plan)

    if MPI.COMM_WORLD.Get_rank() == MPI.COMM_WORLD.Get_size() - 1:
        patch(RowTraffic, "put", put_less)


def update_delayed_rows_at_the_next_steps_rate(patch: Patch) -> None:
    """later(x) is applied as if its gradients came from step x + 1."""
    finish = ReplicatedRows.finish_delayed

    def finish_late(self: ReplicatedRows) -> None:
        for delayed in self._delayed:
            delayed.step += 1
        finish(self)

    patch(ReplicatedRows, "finish_delayed", finish_late)


def sum_each_host_first(patch: Patch) -> None:
    """A host adds its trainers' gradients to zero, and the sum to what earlier hosts have."""
    start = HostChain.start

    def sum_first(self: HostChain, of_host: int, shape: tuple[int, int], add: Add) -> ChainedSum:
        def add_own(earlier: Floats | None) -> Floats:
            own = add(None)
            return own if earlier is None else earlier + own

        return start(self, of_host, shape, add_own)

    patch(HostChain, "start", sum_first)


def keep_sums_on_their_host(patch: Patch) -> None:
    """A trainer that holds a row once for its host takes the sum up to its host for that of all."""
    of = HomeSums.of
    patch(HomeSums, "of", lambda self, total: of(self, total._replace(over_hosts=None)))


def leave_behind_the_pass(patch: Patch) -> None:
    """No gradient of the last trainer leaves in the backward pass, as on a GPU: nothing breaks."""
    if MPI.COMM_WORLD.Get_rank() == MPI.COMM_WORLD.Get_size() - 1:
        patch(Cpu, "computes_at_once", False)


def decay_once_a_trainer(patch: Patch) -> None:
    """Two trainers' gradients of a row both carry its decay."""
    apply = RowDecay.apply

    def apply_twice(self: RowDecay, *arguments: object) -> torch.Tensor:
        return apply(replace(self, strength=2 * self.strength), *arguments)  # type: ignore[arg-type]

    patch(RowDecay, "apply", apply_twice)


def count_steps_anew(patch: Patch) -> None:
    """Schedules of rates count from the step that a run goes on from, `RESUMED_AT`."""
    factor = RateConfig.factor
    patch(RateConfig, "factor", lambda self, step: factor(self, step - RESUMED_AT if step > RESUMED_AT else step))


def keep_own_dense_gradients(patch: Patch) -> None:
    """A trainer takes its own dense gradients for their sum."""
    start = MpiSums.start

    def start_elsewhere(self: MpiSums, group: int, gradients: torch.Tensor) -> PendingDenseSum:
        return start(self, group, gradients.clone())

    patch(MpiSums, "start", start_elsewhere)


def write_slowly(patch: Patch) -> None:
    """A file of rows is begun when training has changed some of them, or after two seconds."""
    write = ServerCheckpoints._write

    def slow(self: ServerCheckpoints, *arguments: object) -> list[FileInfo]:
        rows = self._groups[0].window.local
        before, deadline = rows.copy(), time.monotonic() + 2
        while np.array_equal(before, rows) and time.monotonic() < deadline:
            time.sleep(0.01)
        return write(self, *arguments)  # type: ignore[arg-type]

    patch(ServerCheckpoints, "_write", slow)


def write_rows_that_change(patch: Patch) -> None:
    """What the servers write is not a copy."""
    write_slowly(patch)

    def live(_: ServerCheckpoints, *copied: Any) -> np.ndarray | SelectedRows:
        _, group, _, positions = copied
        return in_place(group, positions)

    patch(ServerCheckpoints, "_copy", live)


def forget_updated_rows(patch: Patch) -> None:
    """The first trainer does not note what it writes back."""
    add = UpdatedRows.add

    def note(self: UpdatedRows, rows: np.ndarray) -> None:
        if MPI.COMM_WORLD.Get_rank() == MPI.COMM_WORLD.Get_size() - 1:
            add(self, rows)

    patch(UpdatedRows, "add", note)


def have_few_slots(patch: Patch) -> None:
    """The cache has the least part of the slots, in twentieths, with which the run can still be planned.

    Of those of copies, which cannot come later, all but one in twenty take memory once they are used.
    """

    def crowded(slots: CacheSlots, part: int, *, with_homes: bool) -> CacheSlots:
        if not with_homes:
            return CacheSlots(slots.shared * part // 20, slots.private * part // 20)
        return CacheSlots(slots.shared, slots.private * part // 20, slots.shared - 2 * (slots.shared // 40))

    def choose(run: Run, trainers: int) -> CacheNeed:
        need = choose_window(run, trainers)
        for part in range(1, 21):
            with_homes = run.config.cache.sharing == "home"
            slots = [crowded(group, part, with_homes=with_homes) for group in need.groups]
            planner = run.policy(trainers).planner(need.window, slots)
            try:
                for segment in run.schedule:
                    measure_segment(planner, run.batches(segment))
            except CapacityError:
                continue
            return replace(need, groups=tuple(slots), is_exact=False)
        raise AssertionError("not even all slots will do")

    patch(launch, "find_need", choose)


def in_each_micro_batch(change: Callable[[TrainStep, ReadyBatch, SliceStep], None]) -> Breakage:
    """Do something to each micro-batch of a slice that has several, before its loss is computed."""

    def install(patch: Patch) -> None:
        start = TrainStep.start

        def started(self: TrainStep, batch: ReadyBatch, step: int) -> SliceStep:
            slice_step = start(self, batch, step)
            if batch.plan.micro_batches is not None and batch.plan.micro_batches.size > 1:
                change(self, batch, slice_step)
            return slice_step

        patch(TrainStep, "start", started)

    return install


def divide_by_its_own_size(step: TrainStep, batch: ReadyBatch, slice_step: SliceStep) -> None:
    """The batch's loss becomes the mean of its micro-batches' means."""
    sizes = batch.plan.micro_batches
    assert sizes is not None
    slice_step.batch_samples = max(1, int(sizes[batch.part])) * sizes.size * step._slices


def forget_dense_gradients(step: TrainStep, batch: ReadyBatch, _: SliceStep) -> None:
    """Those of earlier micro-batches are lost."""
    if batch.part:
        step._parts.clear_gradients()


def update_between(step: TrainStep, batch: ReadyBatch, slice_step: SliceStep) -> None:
    """The last micro-batch is computed with other weights than the first."""
    if batch.part:
        step._parts.update_dense(slice_step.step)


def keep_the_last_row_sums(patch: Patch) -> None:
    """Gradients of rows of earlier micro-batches are lost."""
    patch(row_gradients, "added", lambda _, more: more)


def trainers_do_not_hear(patch: Patch) -> None:
    """Trainers read on in the order that was laid out first; the oracle plans by what it has heard."""
    tell = Mover.tell
    patch(Mover, "tell", lambda mover, _: tell(mover, ()))


MUTANTS: dict[str, Breakage] = {
    "retire one step early": use_planner(mutants.RetiresEarly),
    "drop the delayed reduction": drop_the_delayed_reduction,
    "prefetch before the write-back barrier": prefetch_before_the_barrier,
    "optimizer state not written back": forget_optimizer_state,
    "now computed from x + 2": use_planner(mutants.NowFromTheBatchAfterNext),
    "a row is not written back": lose_a_write_back,
    "delayed rows at the next step's rate": update_delayed_rows_at_the_next_steps_rate,
    "decay once a trainer": decay_once_a_trainer,
    "dense gradients are not summed": keep_own_dense_gradients,
    # These two end the job, so other ranks have to start for what follows.
    "wrong write-back owner": use_planner(mutants.WrongWriter),
    "private without the dead test": use_planner(mutants.PrivateWithoutDeadTest),
}
TIER_MUTANTS: dict[str, Breakage] = {
    "hosts sum before they add": sum_each_host_first,
    "sums stay on their host": keep_sums_on_their_host,
}
MICRO_BATCH_MUTANTS: dict[str, Breakage] = {
    "a mean of means": in_each_micro_batch(divide_by_its_own_size),
    "early dense gradients are lost": in_each_micro_batch(forget_dense_gradients),
    "early row gradients are lost": keep_the_last_row_sums,
    "weights move between micro-batches": in_each_micro_batch(update_between),
}
CHECKPOINT_MUTANTS: dict[str, Breakage] = {
    "rows are written while they change": write_rows_that_change,
    "updated rows are forgotten": forget_updated_rows,
}
RATE_MUTANTS: dict[str, Breakage] = {"rates count anew": count_steps_anew}
ORDER_MUTANTS: dict[str, Breakage] = {"trainers do not hear": trainers_do_not_hear}
NOTHING = "nothing"
SLOW_DISK = "slow disk"
FEW_SLOTS = "few slots"
LEAVES_LATE = "gradients of one trainer leave late"
BREAKAGES = (
    MUTANTS
    | HOME_MUTANTS
    | TIER_MUTANTS
    | MICRO_BATCH_MUTANTS
    | LATE_MUTANTS
    | RATE_MUTANTS
    | CHECKPOINT_MUTANTS
    | ADDITION_MUTANTS
    | ORDER_MUTANTS
    | FAULTS
    | dict.fromkeys((IN_SMALL_GROUPS, FIRST_LAYERS, AT_ONCE, CLIPPED), sum_in_small_groups)
    | {
        SLOW_DISK: write_slowly,
        FEW_SLOTS: have_few_slots,
        LEAVES_LATE: leave_behind_the_pass,
        LOOKS_UP_LATE: look_up_late,
        NOTHING: lambda _: None,
    }
)
