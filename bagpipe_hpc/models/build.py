"""Makes the model that `model.name` names, with its first weights: the same on every trainer and in the reference."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.doors import MODELS
from bagpipe_hpc.config.schema import Config, ModelConfig
from bagpipe_hpc.config.values import chosen_names
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.contract import ModelKernels, TakesKernels
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.optimizer.dense_optimizer import known_optimizers

_TORCH = str(Path(torch.__file__).parent)


def build_model(config: ModelConfig, facts: ModelFacts, kernels: ModelKernels | None = None) -> nn.Module:
    """Make a model on the CPU, or on the device of a surrounding `with torch.device`.

    Args:
        config: its name, its own settings, and the precision of one that takes no kernels.
        facts: sizes of its inputs, and the seed of its first weights.
        kernels: compute its layers, if it `TakesKernels`; None: it computes them itself.

    Raises:
        ConfigError: there is no such model, or it cannot be made.
    """
    kind = MODELS.implementation(config.name)
    with blaming_model(config.name, "cannot be made"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(facts.seed)
        model: object = kind(facts, config.settings)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model.name = {config.name!r}: must be an nn.Module; it is {type(model).__name__}")
    for name, weight in model.named_parameters():
        if nn.parameter.is_lazy(weight):
            what = f"its parameter {name} has no size yet; give its layer the sizes, such as facts.dense_features"
            raise ConfigError(f"model.name = {config.name!r}: {what}")
    for name in chosen_names(config.frozen, [name for name, _ in model.named_parameters()], "model.frozen"):
        model.get_parameter(name).requires_grad_(False)
    if isinstance(model, TakesKernels):
        if kernels is not None:
            with blaming_model(config.name, "use_kernels fails"):
                model.use_kernels(kernels)
    elif config.precision == "bfloat16":
        _use_autocast(model)
    return model


def _use_autocast(model: nn.Module) -> None:
    """Let a model compute its forward pass, and so its backward pass, under torch's autocast to bfloat16.

    Weights stay float32, and so do logits, whatever the last operation gives. torch's `meta` device, on which models
    are measured, has no autocast.
    """
    own: Callable[..., Any] | None = model.__dict__.get("forward")

    # Not its name: by that, `pickle` would take the model's own function, without autocast.
    @functools.wraps(type(model).forward, assigned=("__doc__", "__annotations__"))
    def with_autocast(model: nn.Module, dense: Tensor, *rest: Any, **named: Any) -> Any:
        device = dense.device.type
        with torch.autocast(device, torch.bfloat16) if device != "meta" else nullcontext():
            logits = own(dense, *rest, **named) if own else type(model).forward(model, dense, *rest, **named)
        return logits.float() if isinstance(logits, Tensor) else logits

    # A module around it would rename the weights. It is bound, so that a copy of the model computes with its own.
    model.forward = MethodType(with_autocast, model)


def takes_kernels(config: ModelConfig) -> bool:
    """Whether other code can compute the layers of the model that a configuration names."""
    return issubclass(MODELS.implementation(config.name), TakesKernels)


def layers_tell(config: ModelConfig) -> bool:
    """Whether, on CPUs, the layers of a configuration's model announce that they are about to read their weights."""
    return config.precision == "float32" and takes_kernels(config)


def updates_by_layers(config: Config) -> bool:
    """Whether dense weights may be updated layer by layer, when the layers say that they are about to read them.

    They may if nothing else reads them in a forward pass, as in the models of this package, and if the update of a
    weight needs no other weight's gradient. Torch's own optimizers need none; clipping by the norm of all needs all; a
    user's optimizer may need any.
    """
    optimizer = config.optimizer
    is_known = config.model.name in MODELS.entries and optimizer.dense in known_optimizers()
    return is_known and layers_tell(config.model) and not optimizer.dense_clip_norm


def blaming_model(name: str, what: str) -> AbstractContextManager[None]:
    """Turn what the code of a model raises in the body into an error that names `model.name` and the line.

    Args:
        name: `model.name`.
        what: what goes wrong then, in words.
    """
    return MODELS.blaming(name, what, library=_TORCH)
