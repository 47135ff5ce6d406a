"""Ends a run whose model diverges at the first number that is NaN or infinite, by name, before a checkpoint holds it.

What is looked at in each step: the loss of the slice, every row that was updated, with its optimizer state, and the
dense gradients and weights. Row gradients and their sums need no look of their own: where one is not finite, the row is
not either. The dense optimizer's state is looked at before it is saved.

A CPU is asked at once. A GPU only takes notes, since asking means to wait for it: they are read where losses are read,
and before a checkpoint.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from bagpipe_hpc.cache.row_cache import NO_ROW, RowCache
from bagpipe_hpc.errors import DivergenceError
from bagpipe_hpc.kernels.dense.finite import FiniteKernel
from bagpipe_hpc.kernels.dense.finite_notes import FiniteNotes
from bagpipe_hpc.step.ready_batch import LookUps

_LOSS, _FIRST_GROUP = range(2)


def note_kinds(groups: int) -> int:
    """Kinds of notes that are taken with so many groups of tables: of the loss, each group, and the dense half."""
    return _FIRST_GROUP + groups + 1


class DivergenceWatch:
    """Looks at what one trainer, or the reference, computes.

    Args:
        caches: the rows of each group of tables.
        model: dense half.
        optimizer: of the dense weights.
        kernel: looks for what is not finite, on the rows' device.
        notes: of `note_kinds`, which `require_finite` alone raises; None to raise at once, which waits for the device.
        row_names: say for each group how users know one of its rows.
        advice: says at the end of an error what to do, in sentences without the last full stop.
    """

    def __init__(
        self,
        caches: Sequence[RowCache],
        model: nn.Module,
        optimizer: Optimizer,
        kernel: FiniteKernel,
        notes: FiniteNotes | None,
        *,
        row_names: Sequence[Callable[[int], str]],
        advice: Callable[[], str],
    ) -> None:
        self._row_names = row_names
        self._advice = advice
        self._caches = caches
        self._optimizer = optimizer
        self._kernel = kernel
        self._notes = notes
        self._of_dense = _FIRST_GROUP + len(caches)
        self._names, self._weights = zip(*model.named_parameters(), strict=True)

    def see_loss(self, step: int, loss: Tensor, gradients: Mapping[int, Tensor], look_ups: Sequence[LookUps]) -> None:
        """Look at a slice's loss, after the backward pass.

        Args:
            step: number of the step, from 1.
            loss: float32 `[]`.
            gradients: of its embeddings of each width D, float32 `[O, D]`.
            look_ups: of each group of tables.

        Raises:
            DivergenceError: it is not finite; unless that is deferred.
        """
        if self._notes:
            self._notes.see_tensors(_LOSS, step, [loss])
        elif not math.isfinite(value := float(loss)):
            rows = (self._wrong_row(group, own, gradients) for group, own in enumerate(look_ups))
            found = [row for row in rows if row][:1]
            named = zip(self._names, self._weights, strict=True)
            dense = [(name, weight.grad) for name, weight in named if weight.grad is not None]  # others are frozen
            if (first := int(self._kernel.first_tensor([gradient for _, gradient in dense]))) < len(dense):
                found.append(f"layer {dense[first][0]}")
            first_gradients = f", and the first such gradients are of {' and '.join(found)}" if found else ""
            raise self._error(step, f"the loss is {value}{first_gradients}")

    def _wrong_row(self, group: int, look_ups: LookUps, gradients: Mapping[int, Tensor]) -> str:
        """The first row of a group that has a gradient which is not finite.

        Empty if there is none, or if all live at other trainers, which alone know their numbers.
        """
        cache, pool = self._caches[group], look_ups.pool
        wrong = torch.isfinite(gradients[cache.width]).all(1).logical_not()
        of_look_ups = (wrong if pool is None else wrong[pool.outputs.long()]).nonzero()
        rows = cache.rows_in(look_ups.slots[look_ups.positions[of_look_ups[:, 0]]])
        known = rows[rows != NO_ROW]
        return self._row_names[group](int(known[0])) if len(known) else ""

    def see_rows(self, step: int, slots: Tensor, group: int = 0) -> None:
        """Look at rows of a group of tables after their update.

        Args:
            step: number of the step, from 1.
            slots: of the rows, int32 `[N]`.
            group: of tables, from 0.

        Raises:
            DivergenceError: one is not finite; unless that is deferred.
        """
        if not (count := slots.numel()):
            return
        cache, kind = self._caches[group], _FIRST_GROUP + group
        if self._notes:
            self._notes.see_rows(kind, step, cache.trained_columns, slots, cache.numbers)
        elif (first := int(self._kernel.first_row(cache.trained_columns, slots))) < count:
            raise self._error(step, self._describe(kind, int(cache.rows_in(slots[first : first + 1]))))

    def see_dense(self, step: int) -> None:
        """Look at the dense gradients and at the weights after their update.

        Raises:
            DivergenceError: one is not finite; unless that is deferred.
        """
        gradients = [weight.grad if weight.grad is not None else weight for weight in self._weights]
        tensors = [*gradients, *self._weights]
        if self._notes:
            self._notes.see_tensors(self._of_dense, step, tensors)
        elif (place := int(self._kernel.first_tensor(tensors))) < len(tensors):
            raise self._error(step, self._describe(self._of_dense, place))

    def require_finite(self) -> None:
        """Raise what was noted so far; waits for the device.

        Raises:
            DivergenceError: something was not finite.
        """
        notes = self._notes.read() if self._notes else []
        if steps := [step for step, _ in notes if step]:
            first = min(steps)
            what = [self._describe_note(kind, which) for kind, (step, which) in enumerate(notes) if step == first]
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
            raise self._error(step, f"{wrong} of {logits.size} predictions are not finite")

    def _describe_note(self, kind: int, which: int) -> str:
        """What a note says; rows are noted as the cache numbers them."""
        has_offset = _FIRST_GROUP <= kind < self._of_dense and self._caches[kind - _FIRST_GROUP].numbers is not None
        return self._describe(kind, which + NO_ROW if has_offset else which)

    def _describe(self, kind: int, which: int) -> str:
        if kind == _LOSS:
            return "the loss is not finite"
        if kind < self._of_dense:
            return f"{self._row_names[kind - _FIRST_GROUP](which)} is not finite after its update"
        if which < len(self._names):
            return f"the gradient of layer {self._names[which]} is not finite"
        return f"layer {self._names[which - len(self._names)]} is not finite after its update"

    def _error(self, step: int, what: str) -> DivergenceError:
        return DivergenceError(f"the model has diverged in step {step}: {what}. {self._advice()}")
