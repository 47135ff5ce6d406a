"""Row operations in plain torch: the definition that faster versions are tested against.

Every result depends only on the row's own inputs, never on where a row stands in an array: elementwise steps are
rounded one by one (no fused multiply-add, which vectorised code uses for some positions only), and sums have a fixed
order. That is what makes a distributed run equal to the reference bit for bit.

Legend: `R` rows of a table or cache, `N` rows of one call, `M` look-ups, `D` embedding width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bagpipe_hpc.kernels.sum_order import SumOrder


class ReferenceRowOperations:
    """`RowOperations` on any device, where the methods are described; int64 only where torch wants it."""

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """See `RowOperations`."""
        return table.index_select(0, slots)

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """See `RowOperations`."""
        return table.index_select(0, slots.index_select(0, positions))

    def gather_records(self, columns: Sequence[Tensor], slots: Tensor) -> Tensor:
        """See `RowOperations`."""
        return torch.cat([self.gather(part, slots) for part in columns], dim=1)

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """See `RowOperations`."""
        widths = [part.shape[1] for part in columns]
        for part, values in zip(columns, torch.split(records, widths, dim=1), strict=True):
            _scatter(part, slots, values)

    def order_look_ups(self, positions: Tensor, count: int) -> None:
        """See `RowOperations`."""

    def sum_by_position(
        self,
        gradients: Tensor,
        positions: Tensor,
        count: int,
        order: SumOrder | None = None,  # noqa: ARG002
    ) -> Tensor:
        """See `RowOperations`; on a GPU the order of a sum is torch's own."""
        return gradients.new_zeros(count, gradients.shape[1]).index_add_(0, positions, gradients)

    def apply_sgd(self, weights: Tensor, slots: Tensor, gradients: Tensor, lr: float) -> None:
        """See `RowOperations`."""
        self._subtract(weights, slots, gradients * lr)

    def apply_rowwise_adagrad(
        self, weights: Tensor, accumulator: Tensor, slots: Tensor, gradients: Tensor, lr: float, eps: float
    ) -> None:
        """See `RowOperations`; FBGEMM's `EXACT_ROWWISE_ADAGRAD`."""
        sums = self.gather(accumulator, slots) + fold_columns(gradients * gradients) / gradients.shape[1]
        _scatter(accumulator, slots, sums)
        self._subtract(weights, slots, gradients / (_root(sums) + eps) * lr)

    def apply_adagrad(
        self, weights: Tensor, accumulator: Tensor, slots: Tensor, gradients: Tensor, lr: float, eps: float
    ) -> None:
        """See `RowOperations`."""
        sums = self.gather(accumulator, slots) + gradients * gradients
        _scatter(accumulator, slots, sums)
        self._subtract(weights, slots, gradients / (_root(sums) + eps) * lr)

    def apply_adam(
        self,
        weights: Tensor,
        first: Tensor,
        second: Tensor,
        slots: Tensor,
        gradients: Tensor,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        step: int,
    ) -> None:
        """See `RowOperations`; rows without a gradient keep their moments, as in FBGEMM's Adam."""
        means = self.gather(first, slots) * beta1 + gradients * (1 - beta1)
        squares = self.gather(second, slots) * beta2 + gradients * gradients * (1 - beta2)
        _scatter(first, slots, means)
        _scatter(second, slots, squares)
        step_size, root_scale = adam_factors(lr, beta1, beta2, step)
        self._subtract(weights, slots, means / (_root(squares) * root_scale + eps) * step_size)

    def _subtract(self, weights: Tensor, slots: Tensor, steps: Tensor) -> None:
        _scatter(weights, slots, self.gather(weights, slots).sub_(steps))


def adam_factors(lr: float, beta1: float, beta2: float, step: int) -> tuple[float, float]:
    """Adam's bias corrections at a step: what scales the step, and what scales the root of the second moment.

    They are rounded to float32 once, where they meet the rows' numbers.
    """
    return lr / (1 - beta1**step), 1 / (1 - beta2**step) ** 0.5


def fold_columns(values: Tensor) -> Tensor:
    """Sum the columns by folding the right half onto the left one until a single one is left.

    `Tensor.sum` chooses its order by shape and position; this order depends on the number of columns alone.

    Args:
        values: float32 `[N, D]`.

    Returns:
        float32 `[N, 1]`.
    """
    while values.shape[1] > 1:
        half = (values.shape[1] + 1) // 2
        folded = values[:, :half].clone()
        folded[:, : values.shape[1] - half] += values[:, half:]
        values = folded
    return values


def _scatter(table: Tensor, slots: Tensor, values: Tensor) -> None:
    """Overwrite distinct rows: `table [R, K]`, `slots` int32 `[N]`, `values [N, K]`."""
    table.index_copy_(0, slots.long(), values)


def _root(values: Tensor) -> Tensor:
    """The nearest float32 numbers to the roots; torch may have MKL take float32 roots, which are not always that."""
    return values.double().sqrt().float()
