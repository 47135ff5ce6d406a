"""Stochastic gradient descent on rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bagpipe_hpc.config.float32 import require_positive
from bagpipe_hpc.rows.optimizers.contract import KernelCall, RowOptimizer

if TYPE_CHECKING:
    from torch import Tensor


class SGD(RowOptimizer):
    """Plain stochastic gradient descent; no state."""

    @dataclass(frozen=True)
    class Settings:
        """Plain stochastic gradient descent."""

        lr: float = 0.005
        """Learning rate of the embedding rows."""

        def __post_init__(self) -> None:
            require_positive("lr", self.lr)

    settings: Settings

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:  # noqa: ARG002
        """`w -= g * lr`."""
        weights -= gradients * self.settings.lr

    def kernel(self, step: int) -> KernelCall:  # noqa: ARG002
        """`apply_sgd`."""
        return KernelCall("sgd", (self.settings.lr,))
