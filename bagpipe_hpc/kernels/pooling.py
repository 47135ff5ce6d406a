"""Pooling of look-ups in one pass over their rows, and its derivative, by the row operations of any device.

Legend: `R` rows of a cache, `U` distinct rows of a batch, `V` look-ups, `O` outputs, `D` embedding width.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from bagpipe_hpc.kernels.sum_order import SumOrder

if TYPE_CHECKING:
    from bagpipe_hpc.kernels.row_operations import RowOperations


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
        """All of them."""
        return [self.starts, self.outputs, *([] if self.scales is None else [self.scales])]


def pool_look_ups(
    operations: "RowOperations", weights: Tensor, slots: Tensor, positions: Tensor, layout: PoolLayout
) -> Tensor:
    """Look rows up and add up those of each output, in the order in which they stand, starting with 0.

    Args:
        operations: of the device.
        weights: of the cache, float32 `[R, D]`.
        slots: of the batch's rows, int32 `[U]`.
        positions: the row of each look-up, as an index into `slots`, int32 `[V]`.
        layout: of the look-ups.

    Returns:
        Float32 `[O, D]`; an output without look-ups is 0.
    """
    rows = operations.gather_look_ups(weights, slots, positions)
    if layout.scales is not None:
        rows.mul_(layout.scales.unsqueeze(1))
    in_order = SumOrder(torch.arange(len(rows), device=rows.device), layout.starts)
    return operations.sum_by_position(rows, layout.outputs, layout.outputs_count, in_order)


def sum_pooled(
    operations: "RowOperations",
    gradients: Tensor,
    positions: Tensor,
    count: int,
    order: SumOrder | None,
    layout: PoolLayout,
) -> Tensor:
    """Sum for each row what comes back to its look-ups, in the order in which these stand, starting with 0.

    Args:
        operations: of the device.
        gradients: of the outputs, float32 `[O, D]`.
        positions: the row of each look-up, int32 `[V]`, each below `count`.
        count: number of distinct rows U.
        order: what `order_look_ups` gave for these positions.
        layout: of the look-ups.

    Returns:
        Float32 `[U, D]`.
    """
    of_look_ups = operations.gather(gradients, layout.outputs)
    if layout.scales is not None:
        of_look_ups.mul_(layout.scales.unsqueeze(1))
    return operations.sum_by_position(of_look_ups, positions, count, order)
