"""One training step (BagPipe, SOSP 2023, section 3.3): what is computed, reduced and applied, and in which order.

Order of events in step x: wait for the rows of x; forward and backward; reduce now(x) and finish later(x - 1); update
those rows and the private ones; start reducing later(x), which hides behind step x + 1; finish the dense gradients;
update the dense weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from bagpipe_hpc.batch_plan import SharedPlan, TrainerPlan
from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.cache.row_optimizers import RowOptimizer
from bagpipe_hpc.errors import ConsistencyError
from bagpipe_hpc.models.dense_reduction import DenseReducer
from bagpipe_hpc.mpi.row_reduction import PendingSum, RowReducer
from bagpipe_hpc.roles.dense_step import forward_backward, predict
from bagpipe_hpc.roles.mover import ReadyBatch
from bagpipe_hpc.roles.step_stats import StepStats
from bagpipe_hpc.trace import Trace


@dataclass
class DelayedUpdate:
    """later(x): rows whose reduction was started in step x and is applied in step x + 1."""

    slots: Tensor
    gradients: PendingSum
    step: int


class TrainStep:
    """Carries out batches on one trainer.

    Args:
        cache: the rows.
        optimizer: updates rows.
        reducer: sums row gradients over the trainers.
        model: dense half.
        dense_optimizer: updates dense weights.
        dense_reducer: sums dense gradients over the trainers.
        look_ups: shape of a sample's look-ups: sparse features F, width D.
        trace: this rank's timeline.
        verify: check the version of every row that is read.
    """

    def __init__(
        self,
        cache: RowCache,
        optimizer: RowOptimizer,
        reducer: RowReducer,
        model: nn.Module,
        dense_optimizer: Optimizer,
        dense_reducer: DenseReducer,
        look_ups: tuple[int, int],
        trace: Trace,
        *,
        verify: bool,
    ) -> None:
        self._cache = cache
        self._optimizer = optimizer
        self._reducer = reducer
        self._model = model
        self._dense_optimizer = dense_optimizer
        self._dense_reducer = dense_reducer
        self._look_ups = look_ups
        self._trace = trace
        self._verify = verify
        self._delayed: DelayedUpdate | None = None
        self.stats = StepStats()

    def train(self, batch: ReadyBatch, step: int) -> None:
        """Train on a batch; `step` counts from 1 over the whole run and becomes the version of the updated rows."""
        shared, own = batch.shared, batch.own
        slots = self._slots(shared, own)
        positions = self._on_device(own.positions)
        if self._verify:
            self._check_versions(slots, shared, own)
        self._dense_optimizer.zero_grad()
        with self._trace.span("forward, backward", batch=shared.batch):
            loss, gradients = forward_backward(
                self._model, batch.dense, batch.labels, self._look_up(slots, positions), shared.samples
            )
        if self._delayed is not None:
            self._delayed.gradients.advance()
        with self._trace.span("sum row gradients", rows=slots.numel()):
            sums = self._cache.operations.sum_by_position(gradients, positions, slots.numel())
        now, reduced = shared.now_slots.size, shared.now_slots.size + shared.later_slots.size
        with self._waiting("reduce now", now):
            total = self._reducer.start(_host(sums[:now])).wait(f"the rows that batch {shared.batch + 1} needs")
        self._update(slots[:now], self._from_host(total), step)
        self.finish_delayed()
        self._update(slots[reduced:], sums[reduced:], step)
        self._delayed = self.start_delayed(slots[now:reduced], sums[now:reduced], step)
        with self._waiting("reduce dense", 0):
            self._dense_reducer.wait()
        with self._trace.span("dense optimizer"):
            self._dense_optimizer.step()
        self.stats.loss_sum += loss
        self.stats.count_plan(shared, own)

    def start_delayed(self, slots: Tensor, sums: Tensor, step: int) -> DelayedUpdate:
        """Start reducing later(x), so that it runs behind the next step."""
        return DelayedUpdate(slots, self._reducer.start(_host(sums)), step)

    def finish_delayed(self) -> None:
        """Apply later(x - 1), if step x has not done so: a row may be retired or read only after that."""
        if self._delayed is None:
            return
        delayed, self._delayed = self._delayed, None
        with self._waiting("reduce later", delayed.slots.numel()):
            total = delayed.gradients.wait(f"the delayed rows of step {delayed.step}")
        self._update(delayed.slots, self._from_host(total), delayed.step)

    def predict(self, batch: ReadyBatch) -> NDArray[np.float32]:
        """Logits of the trainer's slice, float32 `[n]` on the host; nothing is updated."""
        slots = self._slots(batch.shared, batch.own)
        if self._verify:
            self._check_versions(slots, batch.shared, batch.own)
        embeddings = self._look_up(slots, self._on_device(batch.own.positions))
        return _host(predict(self._model, batch.dense, embeddings))

    def _look_up(self, slots: Tensor, positions: Tensor) -> Tensor:
        """Weights of every look-up of the slice, float32 `[n, F, D]`; n may be 0."""
        features, width = self._look_ups
        return self._cache.look_up(slots, positions).view(positions.numel() // features, features, width)

    def _update(self, slots: Tensor, gradients: Tensor, step: int) -> None:
        with self._trace.span("update rows", rows=slots.numel()):
            self._optimizer.apply(self._cache, slots, gradients, step)
            self._cache.set_version(slots, step)

    @contextmanager
    def _waiting(self, what: str, rows: int) -> Iterator[None]:
        """The body waits for a reduction."""
        with self.stats.timed("wait_reductions_s"), self._trace.span(what, rows=rows):
            yield

    def _slots(self, shared: SharedPlan, own: TrainerPlan) -> Tensor:
        """Now, later and private slots in this order, int32 `[U]`."""
        return self._on_device(np.concatenate((shared.now_slots, shared.later_slots, own.private_slots)))

    def _on_device(self, numbers: NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(numbers).to(self._cache.device)

    def _from_host(self, values: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(values).to(self._cache.device)

    def _check_versions(self, slots: Tensor, shared: SharedPlan, own: TrainerPlan) -> None:
        """Compare the rows' versions with the plan's.

        Raises:
            ConsistencyError: a row has missed an update, or got one too many.
        """
        found = self._cache.versions(slots).cpu().numpy()
        expected = np.concatenate((shared.versions, own.versions))
        wrong = np.flatnonzero(found != expected)
        if wrong.size:
            rows = np.concatenate((shared.rows, own.rows))
            first = int(wrong[0])
            raise ConsistencyError(
                f"row {rows[first]} has version {found[first]} instead of {expected[first]} in batch {shared.batch} "
                f"({wrong.size} of {found.size} rows are wrong): it was read before its last update was written back, "
                "or an update was lost"
            )


def _host(values: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = values.contiguous().cpu().numpy()
    return array
