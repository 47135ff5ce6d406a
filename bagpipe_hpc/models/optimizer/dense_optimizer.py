"""The optimizer of the dense weights: a class of `torch.optim`, by name, or one of a user's own (docs/extending.md)."""

import functools
import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bagpipe_hpc.config.doors import Door, Entry, SettingError
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import BagpipeError, ConfigError, met_limit

_UNSUITABLE = {"Optimizer", "LBFGS", "SparseAdam"}
"""The base class; one that evaluates the loss itself, several times a step; one for sparse gradients."""


def known_optimizers() -> list[str]:
    """Short names that `optimizer.dense` may have."""
    return sorted(
        name
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name not in _UNSUITABLE
    )


@functools.cache
def dense_optimizers() -> Door:
    """The door of `optimizer.dense`; its own settings are `optimizer.dense_options`, as its class takes them."""
    entries = {name: Entry(f"torch.optim:{name}") for name in known_optimizers()}
    return Door("optimizer.dense", "optimizer.dense_options.", entries)


def dense_optimizer(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that `optimizer.dense`, `dense_lr` and `dense_options` describe.

    On the CPU it is torch's fused version where there is one and the options do not choose another: one pass over the
    weights instead of one for each operation, less than half of the time.

    Raises:
        ConfigError: there is no such optimizer, or it does not take these weights or the options.
    """
    kind: Any = dense_optimizers().implementation(config.dense)
    if not issubclass(kind, torch.optim.Optimizer):
        raise SettingError("optimizer.dense", config.dense, "must be a subclass of torch.optim.Optimizer")
    weights = list(parameters)
    options = dict(config.dense_options)
    if _can_be_fused(kind, options) and all(weight.device.type == "cpu" for weight in weights):
        options["fused"] = True
    with blaming_optimizer(config):
        optimizer: torch.optim.Optimizer = kind(weights, lr=config.dense_lr, **options)
    return optimizer


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Let an optimizer go on from what another one's `state_dict` gave.

    Its rate and its other hyperparameters stay those that it was made with, though torch would take those of the state.

    Raises:
        Exception: anything that torch raises about a state that is not of these weights and this class.
    """
    groups = [
        {**own, "params": saved["params"]}
        for own, saved in zip(optimizer.param_groups, state["param_groups"], strict=True)
    ]
    optimizer.load_state_dict({**state, "param_groups": groups})


@contextmanager
def blaming_optimizer(config: OptimizerConfig) -> Iterator[None]:
    """Turn what an optimizer raises in the body into an error that names it and `optimizer.dense_options`.

    Some classes of torch check options only when they use them. Where a limit of this process was met, the error says
    that instead.
    """
    try:
        yield
    except BagpipeError:
        raise
    except Exception as error:
        if limit := met_limit(error):
            raise limit from error
        kind = "" if config.dense in known_optimizers() else f"{type(error).__name__}: "
        raise refused_optimizer(config, f"says: {kind}{error}") from error


def refused_optimizer(config: OptimizerConfig, what: str) -> ConfigError:
    """An error that names the dense optimizer and its options.

    Args:
        config: names them.
        what: what it does wrong, to be read after its name.
    """
    options = config.dense_options
    given = f"optimizer.dense_options = {options!r}" if options else f"optimizer.dense = {config.dense!r}"
    return ConfigError(f"{given}: {config.dense} {what}")


def _can_be_fused(kind: Any, options: dict[str, Any]) -> bool:
    """Whether it is a class of torch with a fused version that the options do not rule out."""
    is_torchs = kind.__module__.startswith("torch.optim.")
    has_fused = is_torchs and "fused" in inspect.signature(kind).parameters
    return has_fused and not {"fused", "foreach", "differentiable"} & set(options)
