"""Pooling of look-ups, and its derivative, made of a device's other row operations: what fused kernels must equal.

Legend: `R` rows of a cache, `U` distinct rows of a batch, `V` look-ups, `O` outputs, `D` embedding width.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bagpipe_hpc.kernels.rows.sum_order import SumOrder


class PoolLayout(NamedTuple):
    """Which look-ups are added up to which output.

    Attributes:
        starts: output o is the sum of look-ups `starts[o]` up to `starts[o + 1]`, int32 `[O + 1]` from 0 to V.
        outputs: the output of each look-up, ascending, int32 `[V]`.
        scales: what the row of each look-up is multiplied by, float32 `[V]`; None for 1.
    """

    starts: Tensor
    outputs: Tensor
    scales: Tensor | None

    @property
    def outputs_count(self) -> int:
        """Number of outputs O."""
        return len(self.starts) - 1

    def tensors(self) -> list[Tensor]:
        """All tensors of the layout."""
        return [self.starts, self.outputs, *([] if self.scales is None else [self.scales])]


class SingleSteps(Protocol):
    """The row operations that pooling is made of, as `RowOperations` describes them."""

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """Copy rows."""

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """Copy the row of each look-up."""

    def sum_by_position(
        self, gradients: Tensor, positions: Tensor, count: int, order: SumOrder | None = None
    ) -> Tensor:
        """Sum equal rows in order."""


def pool_step_by_step(
    operations: SingleSteps, table: Tensor, slots: Tensor, positions: Tensor, layout: PoolLayout
) -> Tensor:
    """Look rows up, scale them, and add up those of each output; arguments as for `RowOperations.pool`."""
    rows = operations.gather_look_ups(table, slots, positions)
    if layout.scales is not None:
        rows.mul_(layout.scales.unsqueeze(1))
    in_order = SumOrder(torch.arange(len(rows), device=rows.device), layout.starts)
    return operations.sum_by_position(rows, layout.outputs, layout.outputs_count, in_order)


def sum_pooled_step_by_step(
    operations: SingleSteps,
    gradients: Tensor,
    positions: Tensor,
    count: int,
    order: SumOrder | None,
    layout: PoolLayout,
) -> Tensor:
    """Give each look-up its output's gradient, scale it, and sum those of each row; see `RowOperations.sum_pooled`."""
    of_look_ups = operations.gather(gradients, layout.outputs)
    if layout.scales is not None:
        of_look_ups.mul_(layout.scales.unsqueeze(1))
    return operations.sum_by_position(of_look_ups, positions, count, order)
