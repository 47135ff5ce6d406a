"""Adagrad on rows (Duchi, Hazan, Singer 2011), with an accumulator for each weight or one for the whole row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bagpipe_hpc.config.float32 import require_positive
from bagpipe_hpc.rows.optimizers.contract import KernelCall, RowOptimizer, StateColumns
from bagpipe_hpc.rows.optimizers.exact import mean_of_columns, root

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AdagradSettings:
    """Adagrad."""

    lr: float = 0.005
    """Learning rate of the embedding rows."""
    eps: float = 1e-8
    """Added to the root that divides the gradient."""

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)
        require_positive("eps", self.eps)


class Adagrad(RowOptimizer):
    """Adagrad with an accumulator for each weight, as `torch.optim.Adagrad`."""

    Settings = AdagradSettings
    settings: AdagradSettings
    state = (StateColumns("sum_of_squares", per_weight=True),)

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        """`a += g * g; w -= g / (sqrt(a) + eps) * lr`."""
        (sums,) = state
        sums += gradients * gradients
        weights -= gradients / (root(sums) + self.settings.eps) * self.rate(step)

    def kernel(self, step: int) -> KernelCall:
        """`apply_adagrad`."""
        return KernelCall("adagrad", (self.rate(step), self.settings.eps))


class RowwiseAdagrad(RowOptimizer):
    """Adagrad with one accumulator a row, the mean of the squared gradients: FBGEMM's `EXACT_ROWWISE_ADAGRAD`."""

    Settings = AdagradSettings
    settings: AdagradSettings
    state = (StateColumns("sum_of_mean_squares", per_weight=False),)

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        """`a += mean(g * g); w -= g / (sqrt(a) + eps) * lr`."""
        (sums,) = state
        sums += mean_of_columns(gradients * gradients)
        weights -= gradients / (root(sums) + self.settings.eps) * self.rate(step)

    def kernel(self, step: int) -> KernelCall:
        """`apply_rowwise_adagrad`."""
        return KernelCall("rowwise_adagrad", (self.rate(step), self.settings.eps))
