"""Steps of formulas whose bits depend on a row's own numbers alone, never on where it stands in a batch.

Elementwise operations of torch that round once have that property; these are for what else formulas need.

Legend: `N` rows of one call, `D` columns. Tensors are float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def root(values: Tensor) -> Tensor:
    """The square roots, each rounded to the nearest float32, of any shape.

    `Tensor.sqrt` may take them from MKL, which does not always give the nearest one.
    """
    return values.double().sqrt().float()


def sum_of_columns(values: Tensor) -> Tensor:
    """Fold the right half of the columns onto the left one until a single one is left: `[N, D]` to `[N, 1]`.

    `Tensor.sum` chooses its order by shape and position; this order depends on the number of columns alone.
    """
    while values.shape[1] > 1:
        half = (values.shape[1] + 1) // 2
        folded = values[:, :half].clone()
        folded[:, : values.shape[1] - half] += values[:, half:]
        values = folded
    return values


def mean_of_columns(values: Tensor) -> Tensor:
    """`sum_of_columns` over the number of columns: `[N, D]` to `[N, 1]`.

    By a tensor on the same device, since torch's division by a number on a GPU multiplies by its reciprocal
    (BinaryDivTrueKernel.cu), which may have another last bit.
    """
    return sum_of_columns(values) / values.new_full((), values.shape[1])
