"""The learning rate of the dense weights over the steps of a run, with any optimizer that has torch's groups."""

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.rates import DenseRateConfig
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.optimizer.dense_optimizer import blaming_optimizer, dense_optimizer
from bagpipe_hpc.models.optimizer.trial import tried_shapes

_TRIED_STEPS = 2
_TRIED_WIDTH = 4


class DenseRate:
    """Sets the rate of a dense optimizer before each of its steps; a group with another rate keeps its ratio to `lr`.

    Args:
        optimizer: as it was made with `lr`, before any step.
        lr: the full rate, `optimizer.dense_lr`.
        rates: the factor by which each step multiplies it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, lr: float, rates: DenseRateConfig) -> None:
        self._optimizer = optimizer
        self._lr = lr
        self._rates = rates
        self._full = [float(group["lr"]) for group in optimizer.param_groups]

    def of(self, step: int) -> float:
        """The rate of a step, from 1."""
        return self._lr * self._rates.factor(step)

    def set(self, step: int) -> None:
        """Give the optimizer the rate of a step; nothing is touched where all steps have the same."""
        if not self._rates.varies:
            return
        factor = self._rates.factor(step)
        for group, full in zip(self._optimizer.param_groups, self._full, strict=True):
            rate = full * factor
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def require_rate_followed(config: OptimizerConfig, rates: DenseRateConfig) -> None:
    """Check, by steps on two small layers, that the dense optimizer makes each step with the rate given for it.

    Raises:
        ConfigError: `[dense_rate]` is set, and `optimizer.dense` takes a new rate later than that, or never.
    """
    if rates.varies and torch.equal(_after_steps(config, DenseRateConfig()), _after_steps(config, _FALLING)):
        raise ConfigError(
            f"optimizer.dense = {config.dense!r}: does not make a step with the rate that it is given for it, but with "
            "an earlier one, so it would not follow [dense_rate]; leave that out, or use another optimizer"
        )


_FALLING = DenseRateConfig(decay="step", decay_steps=1, gamma=1e-3)
"""The last of the tried steps has a much lower rate than the one before."""


def _after_steps(config: OptimizerConfig, rates: DenseRateConfig) -> Tensor:
    """The weights of two small layers after some steps, float32 `[numbers]`."""
    weights = [nn.Parameter(torch.ones(shape)) for shape in tried_shapes(config, _TRIED_WIDTH)]
    optimizer = dense_optimizer(config, weights)
    rate = DenseRate(optimizer, config.dense_lr, rates)
    for step in range(1, _TRIED_STEPS + 1):
        for weight in weights:
            weight.grad = torch.full_like(weight, 1 / step)
        rate.set(step)
        with blaming_optimizer(config):
            optimizer.step()
    return torch.cat([weight.detach().flatten() for weight in weights])
