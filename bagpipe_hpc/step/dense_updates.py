"""When the dense weights of a step are updated: all at its end, or each group before a layer first reads it again.

Sums over the trainers that begin late end late. Where layers say what they are about to read
(`models/late_weights.py`), a sum is waited for there: the layers below it run meanwhile, and copies of rows come. So
sums of the first layers should come first, and do (`gradient_groups` turned round, `roles/trainer.py`).

Each weight gets the bits that it gets at the end of the step: its update needs its own gradient alone, except where
gradients are clipped by the norm of all; that is then done at the end. Optimizers of `torch.optim` pass over weights
without a gradient, so that is how a group is updated on its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from bagpipe_hpc.config.doors import MODELS
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.models.dense_reduction import DenseReducer
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.slice_step import Loop, click_training
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trace import Trace


def reads_by_layers(config: Config, loop: Loop) -> bool:
    """Whether nothing reads dense weights between two steps but layers of the model, in its forward pass.

    So it is with models of this package and its own loop; what others read nobody knows.
    """
    return config.model.name in MODELS.entries and loop is click_training


class DenseUpdates:
    """Waits for the sums of dense gradients, and updates the weights.

    Args:
        parts: model and optimizer.
        reducer: sums their gradients over the trainers.
        groups: of weights that it sums as one, in its order.
        stats: of the compute thread.
        trace: this rank's timeline.
        can_wait: whether the weights are read by the model's own layers alone between two steps, so that updates may
            come when these say so; False: at the end of each step.
    """

    def __init__(
        self,
        parts: ComputeParts,
        reducer: DenseReducer,
        groups: Sequence[Sequence[nn.Parameter]],
        stats: StepStats,
        trace: Trace,
        *,
        can_wait: bool,
    ) -> None:
        self._parts = parts
        self._reducer = reducer
        self._groups = groups
        self._group_of: dict[Tensor, int] = {weight: number for number, group in enumerate(groups) for weight in group}
        self._stats = stats
        self._trace = trace
        self._can_wait = can_wait and not parts.dense_clip_norm
        self._step = 0
        self._updated = len(groups)
        self._gradients: list[list[Tensor | None]] = []

    def begin_pass(self, *, is_last: bool) -> None:
        """Update what the next forward pass may read without saying so.

        Args:
            is_last: whether the pass is the last one of a step.
        """
        late = self._parts.late_weights
        silent = (group for weight, group in self._group_of.items() if late is None or not late.knows(weight))
        self._update_up_to(max(silent, default=-1))
        self._reducer.begin_pass(is_last=is_last)

    def before_use(self, weight: Tensor) -> None:
        """Update a weight that is about to be read, and what is summed before it."""
        self._update_up_to(self._group_of.get(weight, -1))

    def end_step(self, step: int) -> None:
        """Behind the backward pass of a step and the updates of its rows."""
        if not self._can_wait:
            with self._waiting():
                self._reducer.wait()
            with self._trace.span("dense optimizer"):
                self._parts.update_dense(step)
            return
        self._reducer.start_rest()
        self._step, self._updated = step, 0
        self._gradients = [[weight.grad for weight in group] for group in self._groups]
        self._set_gradients([[None] * len(group) for group in self._groups])

    def settle(self) -> None:
        """Update all that is left: all weights are those behind the last step."""
        self._update_up_to(len(self._groups) - 1)

    def _update_up_to(self, last: int) -> None:
        while self._updated <= last:
            group, gradients = self._groups[self._updated], self._gradients[self._updated]
            with self._waiting():
                self._reducer.finish_next()
            with self._trace.span("dense optimizer"):
                for weight, gradient in zip(group, gradients, strict=True):
                    weight.grad = gradient
                self._parts.step_dense(self._step)
                for weight in group:
                    weight.grad = None
            self._updated += 1
            if self._updated == len(self._groups):
                self._end_updates()

    def _end_updates(self) -> None:
        """All groups are updated."""
        self._set_gradients(self._gradients)
        self._parts.divergence.see_dense(self._step)
        self._parts.dense_optimizer.zero_grad()
        self._gradients = []

    def _set_gradients(self, gradients: Sequence[Sequence[Tensor | None]]) -> None:
        for group, own in zip(self._groups, gradients, strict=True):
            for weight, gradient in zip(group, own, strict=True):
                weight.grad = gradient

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        with self._stats.timed("wait_reductions_s"), self._trace.span("reduce dense", rows=0):
            yield
