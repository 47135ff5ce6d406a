"""Row operations in plain torch: the definition that faster versions are tested against.

Every result depends only on the row's own inputs, never on where a row stands in an array: sums have a fixed order.
That, and formulas that round each step (`rows/optimizers`), makes a distributed run equal to the reference bit for bit.

Legend: `R` rows of a table or cache, `N` rows of one call, `M` look-ups, `D` embedding width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bagpipe_hpc.kernels.rows.pooling import PoolLayout, pool_step_by_step, sum_pooled_step_by_step
from bagpipe_hpc.kernels.rows.sum_order import SumOrder


class ReferenceRowOperations:
    """`RowOperations`, which describes the methods, on any device; int64 only where torch wants it."""

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """`index_select`, which copies."""
        return table.index_select(0, slots)

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """Two `index_select`s: the slots of the look-ups, then their rows."""
        return table.index_select(0, slots.index_select(0, positions))

    def gather_records(self, columns: Sequence[Tensor], slots: Tensor) -> Tensor:
        """Each table's rows, joined side by side."""
        return torch.cat([self.gather(part, slots) for part in columns], dim=1)

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """Each table's part of the records, by index assignment."""
        widths = [part.shape[1] for part in columns]
        for part, values in zip(columns, torch.split(records, widths, dim=1), strict=True):
            _scatter(part, slots, values)

    def order_look_ups(self, positions: Tensor, count: int) -> None:
        """None: `index_add_` needs nothing beforehand."""

    def sum_by_position(
        self,
        gradients: Tensor,
        positions: Tensor,
        count: int,
        order: SumOrder | None = None,  # noqa: ARG002
    ) -> Tensor:
        """`index_add_`, which adds in order on the CPU; on a GPU the order of a sum is torch's own."""
        return gradients.new_zeros(count, gradients.shape[1]).index_add_(0, positions, gradients)

    def pool(self, table: Tensor, slots: Tensor, positions: Tensor, layout: PoolLayout) -> Tensor:
        """Step by step, as the other methods do it."""
        return pool_step_by_step(self, table, slots, positions, layout)

    def sum_pooled(
        self, gradients: Tensor, positions: Tensor, count: int, order: SumOrder | None, layout: PoolLayout
    ) -> Tensor:
        """Step by step, as the other methods do it."""
        return sum_pooled_step_by_step(self, gradients, positions, count, order, layout)

    def update_kernel(self, name: str, width: int) -> None:
        """None: the formulas of `rows/optimizers` are in plain torch themselves."""


def _scatter(table: Tensor, slots: Tensor, values: Tensor) -> None:
    """Overwrite distinct rows: `table [R, K]`, `slots` int32 `[N]`, `values [N, K]`."""
    table.index_copy_(0, slots.long(), values)
