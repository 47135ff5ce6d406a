"""When the dense weights of a step are updated: all at its end, or each group before a layer first reads it again.

Where layers say what they are about to read (`models/layers/layer_weights.py`), a sum over the trainers is waited for
there: the layers below it run meanwhile, and copies of rows come. Late gradients come in the order in which layers read
their weights (`order_of_sums`), those that come at once in the other one; so groups are updated in any order.

Each weight gets the bits that it gets at the end of the step: its update needs its own gradient alone. Where it may
need others, all weights are updated at the end (`may_wait`). Optimizers of `torch.optim` pass over weights without a
gradient, so that is how a group is updated on its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from torch import Tensor, nn

from bagpipe_hpc.config.schema import Config, TrainConfig
from bagpipe_hpc.models.build import updates_by_layers
from bagpipe_hpc.models.layers.layer_weights import LayerWeights
from bagpipe_hpc.models.sums.gradient_groups import groups_at_once
from bagpipe_hpc.models.sums.reduction import DenseReducer
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.slice_step import Loop, click_training
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trace import Trace


def may_wait(config: Config, loop: Loop) -> bool:
    """Whether updates of dense weights may wait until layers read these (`updates_by_layers`).

    The package's own loop leaves the weights alone between two steps; what others read nobody knows.
    """
    return updates_by_layers(config) and loop is click_training


def order_of_sums(
    groups: Sequence[Sequence[nn.Parameter]], layer_weights: LayerWeights, train: TrainConfig
) -> list[Sequence[nn.Parameter]]:
    """The groups of a model in the order in which their gradients are complete, where some of these may be late.

    Args:
        groups: of weights that are summed as one, in the order of the backward pass (`gradient_groups`).
        layer_weights: hears from layers; learns which weights there are, and which of them have no late gradients.
        train: says how many are late.
    """
    count = groups_at_once([sum(weight.numel() for weight in group) for group in groups], train.share_of_late_weights)
    at_once, late = groups[:count], groups[count:]
    layer_weights.expect(chain.from_iterable(groups), chain.from_iterable(at_once))
    return [*at_once, *reversed(late)]


class DenseUpdates:
    """Waits for the sums of dense gradients, and updates the weights.

    Args:
        parts: model and optimizer.
        reducer: sums their gradients over the trainers.
        groups: of weights that it sums as one, as it has them.
        stats: of the compute thread.
        trace: this rank's timeline.
        can_wait: whether updates may come when layers say that they are about to read the weights (`may_wait`); False:
            at the end of each step.
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
        self._group_of = {id(weight): number for number, group in enumerate(groups) for weight in group}
        self._stats = stats
        self._trace = trace
        self._can_wait = can_wait
        self._step = 0
        self._left: set[int] = set()
        self._gradients: list[list[Tensor | None]] = []

    def begin_pass(self, *, is_last: bool) -> None:
        """Update what the next forward pass may read without saying so.

        Args:
            is_last: whether the pass is the last one of a step.
        """
        told = self._parts.layer_weights
        for number in sorted(self._left):
            if told is None or not all(map(told.knows, self._groups[number])):
                self._update(number)
        self._reducer.begin_pass(is_last=is_last)

    def before_use(self, weight: Tensor) -> None:
        """Update a weight that is about to be read, with those of its group."""
        if self._left and (number := self._group_of.get(id(weight))) is not None:
            self._update(number)

    def end_step(self, step: int) -> None:
        """Behind the backward pass of a step and the updates of its rows."""
        if not self._can_wait:
            with self._waiting():
                self._reducer.wait()
            with self._trace.span("dense optimizer"):
                self._parts.update_dense(step)
            return
        self._reducer.start_rest()
        self._step, self._left = step, set(range(len(self._groups)))
        self._gradients = [[weight.grad for weight in group] for group in self._groups]
        self._set_gradients([[None] * len(group) for group in self._groups])

    def settle(self) -> None:
        """Update all that is left: all weights are those behind the last step."""
        for number in range(len(self._groups)):
            self._update(number)

    def _update(self, number: int) -> None:
        """Update the weights of a group, unless they are."""
        if number not in self._left:
            return
        group, gradients = self._groups[number], self._gradients[number]
        with self._waiting():
            self._reducer.finish(number)
        with self._trace.span("dense optimizer"):
            for weight, gradient in zip(group, gradients, strict=True):
                weight.grad = gradient
            self._parts.step_dense(self._step)
            for weight in group:
                weight.grad = None
        self._left.remove(number)
        if not self._left:
            self._end_updates()

    def _end_updates(self) -> None:
        """All groups are updated."""
        self._set_gradients(self._gradients)
        self._parts.divergence.see_dense(self._step)
        self._parts.clear_gradients()
        self._gradients = []

    def _set_gradients(self, gradients: Sequence[Sequence[Tensor | None]]) -> None:
        for group, own in zip(self._groups, gradients, strict=True):
            for weight, gradient in zip(group, own, strict=True):
                weight.grad = gradient

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        with self._stats.timed("wait_reductions_s"), self._trace.span("reduce dense", rows=0):
            yield
