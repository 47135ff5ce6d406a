"""Ends a run whose model diverges at the first number that is NaN or infinite, by name, before a checkpoint holds it.

What is looked at in each step: the loss of the slice, every row that was updated, with its optimizer state, and the
dense gradients and weights. Row gradients and their sums need no look of their own: where one is not finite, the row is
not either. The dense optimizer's state is looked at before it is saved.

A CPU is asked at once. A GPU only takes a note, since asking means to wait for it: the notes are read where losses are
read, and before a checkpoint.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.errors import DivergenceError
from bagpipe_hpc.kernels.finite import FiniteKernel
from bagpipe_hpc.kernels.pooling import PoolLayout

CURE = "smaller optimizer.rows_lr and optimizer.dense_lr"
_LOSS, _ROW, _DENSE = range(3)


class DivergenceWatch:
    """Looks at what one trainer, or the reference, computes.

    Args:
        cache: the rows.
        model: dense half.
        optimizer: of the dense weights.
        kernel: looks for what is not finite, on the rows' device.
        row_name: a global row as users know it.
        newest_checkpoint: where the newest complete one is, if there is any; all of them hold finite numbers.
        defers: take notes and raise in `require_finite` alone; else raise at once, which waits for the device.
        cure: what to start anew with.
    """

    def __init__(
        self,
        cache: RowCache,
        model: nn.Module,
        optimizer: Optimizer,
        kernel: FiniteKernel,
        *,
        row_name: Callable[[int], str],
        newest_checkpoint: Callable[[], Path | None],
        defers: bool,
        cure: str = CURE,
    ) -> None:
        self._row_name = row_name
        self._newest_checkpoint = newest_checkpoint
        self._cache = cache
        self._optimizer = optimizer
        self._kernel = kernel
        self._defers = defers
        self._cure = cure
        self._names, self._weights = zip(*model.named_parameters(), strict=True)
        device = cache.device.torch_device
        self._notes = torch.zeros(3, 2, dtype=torch.int64, device=device)
        """Of the first loss, row and dense tensor that was not finite: the step, from 1, and which it was."""

    def see_loss(
        self,
        step: int,
        loss: Tensor,
        gradients: Tensor,
        slots: Tensor,
        positions: Tensor,
        pool: PoolLayout | None = None,
    ) -> None:
        """Look at a slice's loss, after the backward pass.

        Args:
            step: number of the step, from 1.
            loss: float32 `[]`.
            gradients: of its embeddings, float32 `[O, D]`.
            slots: of the batch's rows, int32 `[U]`.
            positions: of the look-ups among them, int32 `[V]`.
            pool: which look-ups make which embedding; None for one each.

        Raises:
            DivergenceError: it is not finite; unless that is deferred.
        """
        if self._defers:
            self._note(_LOSS, step, ~torch.isfinite(loss), torch.zeros_like(self._notes[0, 0]))
        elif not math.isfinite(value := float(loss)):
            found = []
            wrong = torch.isfinite(gradients).all(1).logical_not()
            if len(of_look_ups := (wrong if pool is None else wrong[pool.outputs.long()]).nonzero()):
                found.append(self._row_name(int(self._cache.rows_in(slots[positions[of_look_ups[0]]]))))
            dense = [weight.grad for weight in self._weights if weight.grad is not None]
            if (first := int(self._kernel.first_tensor(dense))) < len(dense):
                found.append(f"layer {self._names[first]}")
            first_gradients = f", and the first such gradients are of {' and '.join(found)}" if found else ""
            raise self._error(step, f"the loss is {value}{first_gradients}")

    def see_rows(self, step: int, slots: Tensor) -> None:
        """Look at rows after their update in a step: int32 `[N]`.

        Raises:
            DivergenceError: one is not finite; unless that is deferred.
        """
        if not (count := slots.numel()):
            return
        place = self._kernel.first_row(self._cache.trained_columns, slots)
        if self._defers:
            slot = slots.index_select(0, place.clamp(max=count - 1).view(1))
            self._note(_ROW, step, place < count, self._cache.rows_in(slot))
        elif (first := int(place)) < count:
            raise self._error(step, self._describe(_ROW, int(self._cache.rows_in(slots[first : first + 1]))))

    def see_dense(self, step: int) -> None:
        """Look at the dense gradients and at the weights after their update.

        Raises:
            DivergenceError: one is not finite; unless that is deferred.
        """
        gradients = [weight.grad if weight.grad is not None else weight for weight in self._weights]
        place = self._kernel.first_tensor([*gradients, *self._weights])
        if self._defers:
            self._note(_DENSE, step, place < 2 * len(self._weights), place)
        elif place < 2 * len(self._weights):
            raise self._error(step, self._describe(_DENSE, int(place)))

    def require_finite(self) -> None:
        """Raise what was noted so far; waits for the device.

        Raises:
            DivergenceError: something was not finite.
        """
        notes: list[tuple[int, int]] = self._notes.tolist() if self._defers else []
        if steps := [step for step, _ in notes if step]:
            first = min(steps)
            what = [self._describe(kind, which) for kind, (step, which) in enumerate(notes) if step == first]
            raise self._error(first, "; ".join(what))

    def require_finite_state(self, step: int) -> None:
        """Look at all that a checkpoint of the dense half would hold; waits for the device.

        Raises:
            DivergenceError: a weight, or a number of the optimizer's state, is not finite.
        """
        self.require_finite()
        for name, weight in zip(self._names, self._weights, strict=True):
            state = self._optimizer.state.get(weight, {})
            for what, value in {"weight": weight, **state}.items():
                if isinstance(value, Tensor) and not torch.isfinite(value).all():
                    kept = "" if value is weight else f": {what!r} of the dense optimizer's state"
                    raise self._error(step, f"layer {name} is not finite{kept}")

    def require_finite_predictions(self, step: int, logits: NDArray[np.float32]) -> None:
        """Look at the predictions of an evaluation after some step, float32 `[n]`.

        Raises:
            DivergenceError: one is not finite, so that AUC and log loss would have no meaning.
        """
        if wrong := int(np.count_nonzero(~np.isfinite(logits))):
            raise self._error(step, f"{wrong} of {logits.size} predictions of the test rows are not finite")

    def _note(self, kind: int, step: int, found: Tensor, which: Tensor) -> None:
        """Keep the first of its kind, on the device: nothing here waits."""
        is_first = found & (self._notes[kind, 0] == 0)
        new = torch.stack((torch.full_like(self._notes[kind, 0], step), which.view(()).long()))
        self._notes[kind] = torch.where(is_first, new, self._notes[kind])

    def _describe(self, kind: int, which: int) -> str:
        if kind == _LOSS:
            return "the loss is not finite"
        if kind == _ROW:
            return f"{self._row_name(which)} is not finite after its update"
        if which < len(self._names):
            return f"the gradient of layer {self._names[which]} is not finite"
        return f"layer {self._names[which - len(self._names)]} is not finite after its update"

    def _error(self, step: int, what: str) -> DivergenceError:
        newest = self._newest_checkpoint()
        last_good = f"The last good checkpoint is {newest}" if newest else "There is no checkpoint yet"
        return DivergenceError(
            f"the model has diverged in step {step}: {what}. {last_good}; start anew with {self._cure}"
        )
