"""Optimizers of embedding rows. The state that each keeps for a row is listed in `row_state.ROW_STATE`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.config.schema import OptimizerConfig


class RowOptimizer(Protocol):
    """Updates rows from the sum of their gradients over the global batch."""

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor, step: int) -> None:
        """Update distinct rows.

        Args:
            cache: the rows, with the optimizer's state.
            slots: int32 `[N]`.
            gradients: of the global-batch mean loss, float32 `[N, D]`.
            step: number of the training step that they come from, from 1.
        """


@dataclass(frozen=True)
class SGD:
    """Plain stochastic gradient descent; no state."""

    lr: float

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor, step: int) -> None:  # noqa: ARG002
        """`w -= lr * g`."""
        cache.operations.apply_sgd(cache.weights, slots, gradients, self.lr)


@dataclass(frozen=True)
class RowwiseAdagrad:
    """Adagrad with one accumulator a row: the mean of the squared gradients."""

    lr: float
    eps: float

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor, step: int) -> None:  # noqa: ARG002
        """`a += mean(g * g); w -= lr * g / (sqrt(a) + eps)`."""
        (accumulator,) = cache.state
        cache.operations.apply_rowwise_adagrad(cache.weights, accumulator, slots, gradients, self.lr, self.eps)


@dataclass(frozen=True)
class Adagrad:
    """Adagrad with an accumulator for each weight, as `torch.optim.Adagrad`."""

    lr: float
    eps: float

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor, step: int) -> None:  # noqa: ARG002
        """`a += g * g; w -= lr * g / (sqrt(a) + eps)`."""
        (accumulator,) = cache.state
        cache.operations.apply_adagrad(cache.weights, accumulator, slots, gradients, self.lr, self.eps)


@dataclass(frozen=True)
class Adam:
    """Adam on the rows that a batch uses; the others keep their moments (as with `torch.optim.SparseAdam`).

    The bias corrections follow the global step, so that a row needs no counter of its own.
    """

    lr: float
    beta1: float
    beta2: float
    eps: float

    def apply(self, cache: RowCache, slots: Tensor, gradients: Tensor, step: int) -> None:
        """`m += (1 - beta1) * (g - m)`, `v` likewise of `g * g`; `w -= lr * m' / (sqrt(v') + eps)`, bias-corrected."""
        first, second = cache.state
        cache.operations.apply_adam(
            cache.weights, first, second, slots, gradients, self.lr, self.beta1, self.beta2, self.eps, step
        )


_OPTIMIZERS: dict[str, Callable[[OptimizerConfig], RowOptimizer]] = {
    "sgd": lambda config: SGD(config.rows_lr),
    "rowwise_adagrad": lambda config: RowwiseAdagrad(config.rows_lr, config.rows_eps),
    "adagrad": lambda config: Adagrad(config.rows_lr, config.rows_eps),
    "adam": lambda config: Adam(config.rows_lr, *config.rows_betas, config.rows_eps),
}


def row_optimizer(config: OptimizerConfig) -> RowOptimizer:
    """The optimizer that `optimizer.rows` names."""
    return _OPTIMIZERS[config.rows](config)
