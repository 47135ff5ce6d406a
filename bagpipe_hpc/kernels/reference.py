"""Row operations in plain torch: the definition that faster versions are tested against.

Every result depends only on the row's own inputs, never on where a row stands in an array: elementwise steps are
rounded one by one (no fused multiply-add, which vectorised code uses for some positions only), and sums have a fixed
order. That is what makes a distributed run equal to the reference bit for bit.

Legend: `R` rows of a table or cache, `N` rows of one call, `M` look-ups, `D` embedding width.
"""

import torch
from torch import Tensor


def gather(table: Tensor, rows: Tensor) -> Tensor:
    """Copy rows: `table [R, K]`, `rows` int64 `[N]` to `[N, K]`."""
    return table.index_select(0, rows)


def scatter(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Overwrite rows in place: `table [R, K]`, distinct `rows` int64 `[N]`, `values [N, K]`."""
    table.index_copy_(0, rows, values)


def sum_by_position(gradients: Tensor, positions: Tensor, count: int) -> Tensor:
    """Sum the gradients of equal rows, in the order in which they stand.

    Args:
        gradients: float32 `[M, D]`.
        positions: int64 `[M]`, each below `count`.
        count: number of distinct rows.

    Returns:
        float32 `[count, D]`; zero where no look-up points. On the CPU each sum runs from left to right.
    """
    return torch.zeros(count, gradients.shape[1], dtype=gradients.dtype, device=gradients.device).index_add_(
        0, positions, gradients
    )


def apply_sgd(weights: Tensor, rows: Tensor, gradients: Tensor, lr: float) -> None:
    """`w -= lr * g` on distinct rows, in place: `weights [R, D]`, `rows` int64 `[N]`, `gradients [N, D]`."""
    scatter(weights, rows, gather(weights, rows).sub_(gradients * lr))


def apply_rowwise_adagrad(
    weights: Tensor, accumulator: Tensor, rows: Tensor, gradients: Tensor, lr: float, eps: float
) -> None:
    """Row-wise Adagrad (one accumulator a row, as in FBGEMM's `EXACT_ROWWISE_ADAGRAD`) on distinct rows, in place.

    `a += mean(g * g); w -= lr * g / (sqrt(a) + eps)`.

    Args:
        weights: float32 `[R, D]`.
        accumulator: float32 `[R, 1]`.
        rows: int64 `[N]`.
        gradients: float32 `[N, D]`.
        lr: learning rate.
        eps: added to the root.
    """
    updated = gather(accumulator, rows) + fold_columns(gradients * gradients) / gradients.shape[1]
    scatter(accumulator, rows, updated)
    # torch may have MKL take float32 roots, which are not always the nearest number; by way of float64 they are.
    root = updated.double().sqrt().float()
    scatter(weights, rows, gather(weights, rows).sub_(gradients / (root + eps) * lr))


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
