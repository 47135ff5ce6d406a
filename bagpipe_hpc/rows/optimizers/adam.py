"""Adam on rows (Kingma, Ba 2015), with a second moment for each weight or one for the whole row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.float32 import LARGEST_BELOW_1, require_positive
from bagpipe_hpc.rows.optimizers.contract import KernelCall, RowOptimizer, StateColumns
from bagpipe_hpc.rows.optimizers.exact import mean_of_columns, root

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AdamSettings:
    """Adam on the rows that a batch uses."""

    lr: float = 0.005
    """Learning rate of the embedding rows."""
    eps: float = 1e-8
    """Added to the root that divides the mean of the gradients."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running means of a row's gradients and of their squares."""

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)
        require_positive("eps", self.eps)
        if not all(0 <= beta <= LARGEST_BELOW_1 for beta in self.betas):
            cure = f"use two numbers from 0 to below 1, {LARGEST_BELOW_1:.8f} (the largest float32) at most"
            raise SettingError("betas", list(self.betas), cure)


class Adam(RowOptimizer):
    """Adam on the rows that a batch uses; the others keep their moments (as with FBGEMM's, and `SparseAdam` of torch).

    The bias corrections follow the global step, so that a row needs no counter of its own.
    """

    Settings = AdamSettings
    settings: AdamSettings
    state = (StateColumns("first_moment", per_weight=True), StateColumns("second_moment", per_weight=True))

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        """`m = m * beta1 + g * (1 - beta1)`, `v` likewise of `g * g`; `w -= m' / (sqrt(v') + eps) * lr`, corrected."""
        means, squares = state
        beta1, beta2 = self.settings.betas
        means.mul_(beta1).add_(gradients * (1 - beta1))
        squares.mul_(beta2).add_(self._squares(gradients) * (1 - beta2))
        step_size, root_scale = self._factors(step)
        weights -= means / (root(squares) * root_scale + self.settings.eps) * step_size

    def kernel(self, step: int) -> KernelCall:
        """`apply_adam`."""
        return KernelCall("adam", self._numbers(step))

    def _squares(self, gradients: Tensor) -> Tensor:
        """What the second moment is a running mean of."""
        return gradients * gradients

    def _numbers(self, step: int) -> tuple[float, ...]:
        """The arguments of the kernel."""
        beta1, beta2 = self.settings.betas
        return beta1, 1 - beta1, beta2, 1 - beta2, self.settings.eps, *self._factors(step)

    def _factors(self, step: int) -> tuple[float, float]:
        """The bias corrections at a step: what scales the step, and what scales the root of the second moment.

        They are rounded to float32 once, where they meet the rows' numbers.
        """
        beta1, beta2 = self.settings.betas
        return self.rate(step) / (1 - beta1**step), 1 / (1 - beta2**step) ** 0.5


class RowwiseAdam(Adam):
    """Adam with one second moment a row, of the mean of the squared gradients: FBGEMM's `PARTIAL_ROWWISE_ADAM`."""

    state = (StateColumns("first_moment", per_weight=True), StateColumns("second_moment_of_row", per_weight=False))

    def _squares(self, gradients: Tensor) -> Tensor:
        return mean_of_columns(gradients * gradients)

    def kernel(self, step: int) -> KernelCall:
        """`apply_rowwise_adam`."""
        return KernelCall("rowwise_adam", self._numbers(step))
