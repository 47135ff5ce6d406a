"""One training step (BagPipe, SOSP 2023, section 3.3): what is computed, reduced and applied, and in which order.

Order of events in step x: wait for the rows of x; forward and backward; reduce now(x) and finish later(x - 1); update
those rows and the private ones; start reducing later(x), which hides behind step x + 1; finish the dense gradients;
update the dense weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.errors import ConsistencyError
from bagpipe_hpc.kernels.device import Mark
from bagpipe_hpc.models.dense_reduction import DenseReducer
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.plan.slices import slice_samples
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.dense_step import predict
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.row_sums import PendingRows, RowSums
from bagpipe_hpc.step.slice_step import SliceStep
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trace import Trace


@dataclass
class DelayedUpdate:
    """later(x): rows of a group of tables whose reduction was started in step x and is applied in step x + 1."""

    group: int
    slots: Tensor
    gradients: PendingRows
    step: int


class TrainStep:
    """Carries out batches on one trainer.

    Args:
        parts: rows, model and their optimizers.
        row_sums: sums row gradients over the trainers.
        dense_reducer: sums dense gradients over the trainers.
        features: what a sample looks up.
        slice_number: of this trainer's slice of each batch, from 0, and how many slices there are.
        trace: this rank's timeline.
        verify: check the version of every row that is read.
    """

    def __init__(
        self,
        parts: ComputeParts,
        row_sums: RowSums,
        dense_reducer: DenseReducer,
        features: Sequence[FeatureFacts],
        slice_number: tuple[int, int],
        trace: Trace,
        *,
        verify: bool,
    ) -> None:
        self._parts = parts
        self._caches = parts.caches
        self._model = parts.model
        self._dense_optimizer = parts.dense_optimizer
        self._divergence = parts.divergence
        self._row_sums = row_sums
        self._dense_reducer = dense_reducer
        self._features = features
        self._slice, self._slices = slice_number
        self._trace = trace
        self._verify = verify
        self._delayed: list[DelayedUpdate] = []
        self._device = parts.device
        self._last_step: Mark = None
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self._device.torch_device)
        self.stats = StepStats()

    def start(self, batch: ReadyBatch, step: int) -> SliceStep:
        """What a training loop gets of a batch; `step` counts from 1 over the whole run."""
        self._check_versions(batch)
        self._dense_optimizer.zero_grad()
        plan = batch.plan
        self._parts.begin_pass(step, slice_samples(plan.samples, plan.batch_samples, self._slices, self._slice))
        embeddings = batch.inputs.embeddings(self._caches, self._features)
        return SliceStep(self._model, batch.inputs, embeddings, plan.batch_samples, step)

    def finish(self, batch: ReadyBatch, slice_step: SliceStep) -> None:
        """Sum and apply the gradients of what `start` gave; its step becomes the version of the updated rows.

        Raises:
            ConfigError: the training loop has not called `backward`.
        """
        plan, inputs, step = batch.plan, batch.inputs, slice_step.step
        loss, gradients = slice_step.result()
        self._divergence.see_loss(step, loss, gradients, inputs.look_ups)
        for delayed in self._delayed:
            delayed.gradients.advance()
        with self._trace.span("sum row gradients", rows=sum(own.slots.numel() for own in inputs.look_ups)):
            sums = inputs.sum_gradients(self._caches, gradients)
        groups = [
            _GroupRows(group, own.slots, of_rows, part.shared.now_slots.size, part.shared.later_slots.size)
            for group, (own, of_rows, part) in enumerate(zip(inputs.look_ups, sums, plan.groups, strict=True))
        ]
        reductions = [self._row_sums.start(rows.sums[rows.is_now]) for rows in groups]
        with self._waiting("reduce now", sum(rows.now for rows in groups)):
            what = f"the rows that batch {plan.batch + 1} needs"
            totals = [reduction.wait(what) for reduction in reductions]
        for rows, total in zip(groups, totals, strict=True):
            self._update(rows.group, rows.slots[rows.is_now], total, step)
        self.finish_delayed()
        for rows in groups:
            own_sums = self._row_sums.rounded(rows.sums[rows.is_private])
            self._update(rows.group, rows.slots[rows.is_private], own_sums, step)
        self._delayed = [
            self.start_delayed(rows.group, rows.slots[rows.is_later], rows.sums[rows.is_later], step) for rows in groups
        ]
        with self._waiting("reduce dense", 0):
            self._dense_reducer.wait()
        with self._trace.span("dense optimizer"):
            self._parts.update_dense(step)
        self._loss_sum += loss
        self.stats.count_plan(plan)
        self._device.wait(self._last_step)
        self._last_step = self._device.mark()

    def take_loss(self) -> float:
        """The sum of the losses since the last call; it waits for the device."""
        loss = float(self._loss_sum)
        self._loss_sum.zero_()
        return loss

    def start_delayed(self, group: int, slots: Tensor, sums: Tensor, step: int) -> DelayedUpdate:
        """Start reducing later(x) of a group of tables, so that it runs behind the next step."""
        return DelayedUpdate(group, slots, self._row_sums.start(sums), step)

    def finish_delayed(self) -> None:
        """Apply later(x - 1), if step x has not done so: a row may be retired or read only after that."""
        all_delayed, self._delayed = self._delayed, []
        for delayed in all_delayed:
            with self._waiting("reduce later", delayed.slots.numel()):
                total = delayed.gradients.wait(f"the delayed rows of step {delayed.step}")
            self._update(delayed.group, delayed.slots, total, delayed.step)

    def predict(self, batch: ReadyBatch) -> NDArray[np.float32]:
        """Logits of the trainer's slice, float32 `[n]` or `[n, K]` on the host; nothing is updated."""
        self._check_versions(batch)
        embeddings = batch.inputs.embeddings(self._caches, self._features)
        return self._device.to_host(predict(self._model, batch.inputs.dense, embeddings))

    def _update(self, group: int, slots: Tensor, gradients: Tensor, step: int) -> None:
        with self._trace.span("update rows", rows=slots.numel()):
            self._parts.update_rows(group, slots, gradients, step)
            self._caches[group].set_version(slots, step)

    @contextmanager
    def _waiting(self, what: str, rows: int) -> Iterator[None]:
        """The body waits for a reduction."""
        with self.stats.timed("wait_reductions_s"), self._trace.span(what, rows=rows):
            yield

    def _check_versions(self, batch: ReadyBatch) -> None:
        """Compare the rows' versions with the plan's, where they are to be verified.

        Raises:
            ConsistencyError: a row has missed an update, or got one too many.
        """
        if not self._verify:
            return
        parts = self._parts
        groups = zip(parts.caches, parts.row_names, batch.inputs.look_ups, batch.plan.groups, strict=True)
        for cache, name_of, own, part in groups:
            found = self._device.to_host(cache.versions(own.slots))
            expected = np.concatenate((part.shared.versions, part.own.versions))
            wrong = np.flatnonzero(found != expected)
            if wrong.size:
                rows = np.concatenate((part.shared.rows, part.own.rows))
                first = int(wrong[0])
                raise ConsistencyError(
                    f"{name_of(int(rows[first]))} has version {found[first]} instead of {expected[first]} in batch "
                    f"{batch.plan.batch} ({wrong.size} of {found.size} rows are wrong): it was read before its last "
                    "update was written back, or an update was lost"
                )


class _GroupRows(NamedTuple):
    """What a step updates of one group of tables: slots `[U]` and the sums of a slice's gradients, `[U, D]`."""

    group: int
    slots: Tensor
    sums: Tensor
    now: int
    later: int

    @property
    def is_now(self) -> slice:
        return slice(0, self.now)

    @property
    def is_later(self) -> slice:
        return slice(self.now, self.now + self.later)

    @property
    def is_private(self) -> slice:
        return slice(self.now + self.later, None)
