"""Native updates of rows, in C++ and CUDA: what each is called and takes. Their formulas are in `rows/optimizers`.

Legend as in `row_operations`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor


class UpdateShape(NamedTuple):
    """What a kernel takes besides rows and gradients.

    Attributes:
        per_weight: for each table of the optimizer's state whether it has a number for each weight; if not, one a row.
        numbers: how many numbers it takes, such as the learning rate (`KernelCall.numbers`).
    """

    per_weight: tuple[bool, ...]
    numbers: int

    def state_shapes(self, rows: int, width: int) -> list[tuple[int, int]]:
        """Shapes of the tables of state that belong to weights `[rows, width]`."""
        return [(rows, width if per_weight else 1) for per_weight in self.per_weight]


UPDATE_KERNELS: dict[str, UpdateShape] = {
    "sgd": UpdateShape((), 1),
    "momentum": UpdateShape((True,), 2),
    "nesterov": UpdateShape((True,), 2),
    "rowwise_adagrad": UpdateShape((False,), 2),
    "adagrad": UpdateShape((True,), 2),
    "adam": UpdateShape((True, True), 7),
    "rowwise_adam": UpdateShape((True, False), 7),
    "ftrl": UpdateShape((True, True), 4),
}
"""By name: the function `apply_NAME` of `row_operations.cpp`, and `bagpipe_apply_NAME` of the CUDA files."""


class UpdateKernel(Protocol):
    """Updates distinct rows in place."""

    def __call__(
        self, weights: Tensor, state: Sequence[Tensor], slots: Tensor, gradients: Tensor, numbers: Sequence[float]
    ) -> None:
        """Update `weights [R, D]` and each table of `state` at `slots [N]` by `gradients [N, D]`."""
