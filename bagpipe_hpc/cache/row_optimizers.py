"""Optimizers of embedding rows: which state a row carries, and how a cache applies an update."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.config import OptimizerConfig


class RowOptimizer(Protocol):
    """Updates rows from the sum of their gradients over the global batch."""

    @property
    def state_columns(self) -> tuple[str, ...]:
        """Names of the float32 numbers that travel with each row behind its weights; they start at 0."""

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor) -> None:
        """Update distinct rows: `slots` int64 `[N]`, `gradients` float32 `[N, D]` of the global-batch mean loss."""


@dataclass(frozen=True)
class SGD:
    """Plain stochastic gradient descent; no state."""

    lr: float
    state_columns: tuple[str, ...] = ()

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor) -> None:
        """`w -= lr * g`."""
        cache.apply_sgd(slots, gradients, self.lr)


@dataclass(frozen=True)
class RowwiseAdagrad:
    """Adagrad with one accumulator a row: the mean of the squared gradients."""

    lr: float
    eps: float
    state_columns: tuple[str, ...] = ("sum_of_mean_squares",)

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
