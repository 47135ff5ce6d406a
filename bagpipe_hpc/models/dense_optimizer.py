"""The optimizer of the dense weights: any class of `torch.optim`, by name."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from bagpipe_hpc.config import OptimizerConfig
from bagpipe_hpc.errors import ConfigError


def dense_optimizer(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that `optimizer.dense`, `dense_lr` and `dense_options` describe.

    Raises:
        ConfigError: torch has no such optimizer, or it does not take the options.
    """
    kind: Any = getattr(torch.optim, config.dense, None)
    is_optimizer = isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    if not is_optimizer:
        known = ", ".join(sorted(torch.optim.__all__))
        raise ConfigError(f"optimizer.dense = {config.dense!r}: torch.optim has no such optimizer; use one of {known}")
    try:
        optimizer: torch.optim.Optimizer = kind(parameters, lr=config.dense_lr, **config.dense_options)
        return optimizer
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"optimizer.dense_options = {config.dense_options!r}: {config.dense} says: {error}"
        ) from error
