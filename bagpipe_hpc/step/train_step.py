"""One training step (BagPipe, SOSP 2023, section 3.3): what is computed, reduced and applied, and in which order.

Order of events in step x: wait for the rows of x from the servers; forward, in which copies of rows are waited for when
the model first asks for embeddings, and backward, in which reducing now(x) starts; finish it and later(x - 1); update
those rows and the private ones; start reducing later(x), which hides behind step x + 1; finish the dense gradients and
update the dense weights, here or before a layer of step x + 1 reads them (`step/dense/updates.py`). Where a slice has
several micro-batches, each waits for its own rows, goes forward and backward, and adds its gradients to those of the
ones before; the rest is done once.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConsistencyError
from bagpipe_hpc.kernels.device import Mark
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.dense.passes import predict
from bagpipe_hpc.step.dense.updates import DenseUpdates
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.row_gradients import RowGradients
from bagpipe_hpc.step.sharing.contract import RowSharing
from bagpipe_hpc.step.slice_step import SliceStep
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trace import Trace


class TrainStep:
    """Carries out batches on one trainer.

    Args:
        parts: rows, model and their optimizers.
        rows: sums row gradients over the trainers, and updates the rows.
        stats: where a step's counts and times go.
        dense: sums dense gradients over the trainers, and updates the dense weights.
        features: what a sample looks up.
        own_slice: number of this trainer's slice of each batch, from 0, and how many slices there are.
        trace: this rank's timeline.
        verify: check the version of every row that is read.
    """

    def __init__(
        self,
        parts: ComputeParts,
        rows: RowSharing,
        stats: StepStats,
        dense: DenseUpdates,
        features: Sequence[FeatureFacts],
        own_slice: tuple[int, int],
        trace: Trace,
        *,
        verify: bool,
    ) -> None:
        self._parts = parts
        self._caches = parts.caches
        self._model = parts.model
        self._divergence = parts.divergence
        self._rows = rows
        self._dense = dense
        self._features = features
        self._slice, self._slices = own_slice
        self._trace = trace
        self._verify = verify
        self._device = parts.device
        self._last_step: Mark = None
        self._row_gradients = RowGradients(parts.caches, rows.begin_update, trace)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self._device.torch_device)
        self.stats = stats

    def start(self, batch: ReadyBatch, step: int) -> SliceStep:
        """What a training loop gets of a micro-batch; `step` counts from 1 over the whole run.

        Rows that other trainers send are waited for when its embeddings are first asked for.
        """
        if batch.part == 0:
            self._parts.clear_gradients()
        self._dense.begin_pass(is_last=batch.is_last)
        self._parts.begin_pass(step, partial(batch.samples, self._slices, self._slice))
        if layer_weights := self._parts.layer_weights:
            layer_weights.begin_pass(partial(self._update_early, batch, step), self._dense.before_use)
        embeddings = Embeddings.coming(self._features, partial(self._look_up, batch))
        self._row_gradients.begin_pass(batch)
        take = self._row_gradients.take if self._device.computes_at_once else None
        return SliceStep(
            self._parts.weights, batch.inputs, embeddings, batch.plan.batch_samples, step, take, self._dense.settle
        )

    def _update_early(self, batch: ReadyBatch, step: int) -> None:
        """Update rows that others wait for, between late products, if all their gradients have come."""
        if batch.is_last:
            self._rows.update_early(batch, step)

    def _look_up(self, batch: ReadyBatch) -> Embeddings:
        """What a model gets of a micro-batch, differentiable, within its forward pass or before."""
        device = self._device.torch_device.type
        # To ask takes 0.1 us, to switch off what is off 2.4.
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            if batch.part == 0:
                self._rows.start(batch)
            self._check_versions(batch)
            return batch.inputs.embeddings(self._caches, self._features).requiring_gradients()

    def add(self, batch: ReadyBatch, slice_step: SliceStep) -> None:
        """Add the gradients of what `start` gave to those of the batch, where the backward pass has not done so.

        Raises:
            ConfigError: the training loop has not called `backward`.
        """
        loss, gradients = slice_step.result()
        self._divergence.see_loss(slice_step.step, loss, gradients, batch.inputs.look_ups)
        self._rows.advance_delayed()
        self._row_gradients.take_others(gradients)
        self._loss_sum += loss

    def finish(self, batch: ReadyBatch, step: int) -> None:
        """Apply the gradients of a batch, whose last micro-batch this is; the step becomes the version of its rows."""
        self._rows.update(batch, step)
        self._dense.end_step(step)
        self.stats.count_plan(batch.plan)
        self._device.wait(self._last_step)
        self._last_step = self._device.mark()

    def settle(self) -> None:
        """Behind the last step of a segment: see that all weights are those behind it."""
        self._dense.settle()

    def take_loss(self) -> float:
        """The sum of the losses since the last call; it waits for the device."""
        loss = float(self._loss_sum)
        self._loss_sum.zero_()
        return loss

    def predict(self, batch: ReadyBatch) -> NDArray[np.float32]:
        """Logits of the trainer's slice, float32 `[n]` or `[n, K]` on the host; nothing is updated."""
        self._rows.start(batch)
        self._check_versions(batch)
        embeddings = batch.inputs.embeddings(self._caches, self._features)
        self._rows.only_read(batch)
        return self._device.to_host(predict(self._model, batch.inputs.dense, embeddings))

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
            if not batch.is_last:  # the others are still being fetched
                wrong = np.intersect1d(wrong, self._device.to_host(own.positions))
            if wrong.size:
                rows = np.concatenate((part.shared.rows, part.own.rows))
                first = int(wrong[0])
                raise ConsistencyError(
                    f"{name_of(int(rows[first]))} has version {found[first]} instead of {expected[first]} in batch "
                    f"{batch.plan.batch} ({wrong.size} of {found.size} rows are wrong): it was read before its last "
                    "update was written back, or an update was lost"
                )
