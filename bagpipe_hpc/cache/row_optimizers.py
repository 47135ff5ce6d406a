"""Optimizers of embedding rows. The state that each keeps for a row is listed in `row_record.STATE_COLUMNS`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.config import OptimizerConfig


class RowOptimizer(Protocol):
    """Updates rows from the sum of their gradients over the global batch."""

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor) -> None:
        """Update distinct rows: `slots` int64 `[N]`, `gradients` float32 `[N, D]` of the global-batch mean loss."""


@dataclass(frozen=True)
class SGD:
    """Plain stochastic gradient descent; no state."""

    lr: float

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor) -> None:
        """`w -= lr * g`."""
        cache.apply_sgd(slots, gradients, self.lr)


@dataclass(frozen=True)
class RowwiseAdagrad:
    """Adagrad with one accumulator a row: the mean of the squared gradients."""

    lr: float
    eps: float

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor) -> None:
        """`a += mean(g * g); w -= lr * g / (sqrt(a) + eps)`."""
        cache.apply_rowwise_adagrad(slots, gradients, self.lr, self.eps)


_OPTIMIZERS: dict[str, Callable[[OptimizerConfig], RowOptimizer]] = {
    "sgd": lambda config: SGD(config.rows_lr),
    "rowwise_adagrad": lambda config: RowwiseAdagrad(config.rows_lr, config.rows_eps),
}


def row_optimizer(config: OptimizerConfig) -> RowOptimizer:
    """The optimizer that `optimizer.rows` names."""
    return _OPTIMIZERS[config.rows](config)
