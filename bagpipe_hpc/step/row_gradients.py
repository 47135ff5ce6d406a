"""Sums gradients of embeddings by their rows, and lets them leave, as soon as the backward pass has them complete."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.step.ready_batch import NO_INPUTS, BatchInputs, ReadyBatch, added
from bagpipe_hpc.telemetry.trace import Trace


class RowGradients:
    """Gradients of the rows of a trainer's slice.

    Whenever a backward pass has those of a group of tables, the groups leave in their order: a group waits for those
    before it. So all trainers let them leave in one order, though not at the same moment of a step.

    Args:
        caches: of each group of tables, all of different widths.
        leave: is given the sums of a group over a slice, float32 `[U, D]`, once a batch.
        trace: this rank's timeline.
    """

    def __init__(
        self, caches: Sequence[RowCache], leave: Callable[[ReadyBatch, int, Tensor], None], trace: Trace
    ) -> None:
        self._caches = caches
        self._groups = {cache.width: group for group, cache in enumerate(caches)}
        self._leave = leave
        self._trace = trace
        self._inputs: BatchInputs = NO_INPUTS
        self._batch: ReadyBatch | None = None
        self._sums: dict[int, Tensor] = {}
        self._taken: set[int] = set()
        self._left = 0

    def begin_pass(self, batch: ReadyBatch) -> None:
        """Turn to a micro-batch, before its backward pass."""
        if batch.part == 0:
            self._left = 0
        self._batch, self._taken = batch, set()

    def take(self, width: int, gradients: Tensor) -> None:
        """Add what a micro-batch's embeddings of width D got, float32 `[O, D]`, all of it; each width is taken once.

        With the last micro-batch the sums of the group leave.
        """
        batch, group = self._batch, self._groups[width]
        assert batch is not None, "a pass has begun"
        own = batch.inputs.look_ups[group]
        with self._trace.span("sum row gradients", rows=own.slots.numel()):
            sums = own.sum_gradients(self._caches[group], gradients)
        self._sums[group] = added(self._sums.get(group), sums)
        self._taken.add(group)
        while batch.is_last and self._left in self._taken:
            self._leave(batch, self._left, self._sums.pop(self._left))
            self._left += 1

    def take_others(self, gradients: Mapping[int, Tensor]) -> None:
        """Take those of the widths that the backward pass has not given, behind it."""
        for width, of_width in gradients.items():
            if self._groups[width] not in self._taken:
                self.take(width, of_width)
