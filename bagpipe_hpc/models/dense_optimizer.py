"""The optimizer of the dense weights: a class of `torch.optim`, by name."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import ConfigError

_OPTION_ERRORS = (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""What classes of torch raise for options that they do not take: some check none of them before they use them."""
_TRIED_WIDTH, _TRIED_GRADIENT = 64, 0.01
_UNSUITABLE = {"Optimizer", "LBFGS", "SparseAdam"}
"""The base class; one that evaluates the loss itself, several times a step; one for sparse gradients."""


def known_optimizers() -> list[str]:
    """Names that `optimizer.dense` may have."""
    return sorted(
        name
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name not in _UNSUITABLE
    )


def dense_optimizer(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that `optimizer.dense`, `dense_lr` and `dense_options` describe.

    On the CPU it is torch's fused version where there is one and the options do not choose another: one pass over the
    weights instead of one for each operation, less than half of the time.

    Raises:
        ConfigError: torch has no such optimizer, it cannot be used here, or it does not take the options.
    """
    if config.dense not in known_optimizers():
        names = ", ".join(known_optimizers())
        raise ConfigError(f"optimizer.dense = {config.dense!r}: not an optimizer for this; use one of {names}")
    kind: Any = getattr(torch.optim, config.dense)
    weights = list(parameters)
    options = dict(config.dense_options)
    if _can_be_fused(kind, options) and all(weight.device.type == "cpu" for weight in weights):
        options["fused"] = True
    try:
        optimizer: torch.optim.Optimizer = kind(weights, lr=config.dense_lr, **options)
        return optimizer
    except _OPTION_ERRORS as error:
        raise _refused_options(config, str(error)) from error


def state_numbers(config: OptimizerConfig) -> float:
    """How many numbers the optimizer keeps for a weight, found by a step on a small layer.

    Raises:
        ConfigError: as for `dense_optimizer`, or the step fails or ends in what is not finite.
    """
    weights = [nn.Parameter(torch.zeros(_TRIED_WIDTH, _TRIED_WIDTH)), nn.Parameter(torch.zeros(_TRIED_WIDTH))]
    optimizer = dense_optimizer(config, weights)
    for weight in weights:
        weight.grad = torch.full_like(weight, _TRIED_GRADIENT)
    try:
        optimizer.step()
    except _OPTION_ERRORS as error:
        raise _refused_options(config, str(error)) from error
    if not all(weight.isfinite().all() for weight in weights):
        raise _refused_options(config, "weights are not finite after a step")
    state = [value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, torch.Tensor)]
    return sum(value.numel() for value in state if value.dim()) / sum(weight.numel() for weight in weights)


def _refused_options(config: OptimizerConfig, why: str) -> ConfigError:
    return ConfigError(f"optimizer.dense_options = {config.dense_options!r}: {config.dense} says: {why}")


def _can_be_fused(kind: Any, options: dict[str, Any]) -> bool:
    """Whether the class has a fused version that the options do not rule out."""
    return "fused" in inspect.signature(kind).parameters and not {"fused", "foreach", "differentiable"} & set(options)
