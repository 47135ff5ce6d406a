"""Makes the model that `model.name` names, with its first weights: the same on every trainer and in the reference."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from bagpipe_hpc.config.doors import ENTRY_ERRORS, MODELS
from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import BagpipeError, ConfigError
from bagpipe_hpc.models.contract import ModelKernels, TakesKernels
from bagpipe_hpc.models.facts import ModelFacts

_TORCH = str(Path(torch.__file__).parent)


def build_model(config: ModelConfig, facts: ModelFacts, kernels: ModelKernels | None = None) -> nn.Module:
    """Make a model on the CPU, or on the device of a surrounding `with torch.device`.

    Args:
        config: its name and its own settings.
        facts: sizes of its inputs, and the seed of its first weights.
        kernels: what computes its layers, if it takes them from others; else it does as it was made.

    Raises:
        ConfigError: there is no such model, or it cannot be made.
    """
    kind = MODELS.implementation(config.name)
    with blaming_model(config.name, "cannot be made"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(facts.seed)
        model: object = kind(facts, config.settings)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model.name = {config.name!r}: must be an nn.Module; it is {type(model).__name__}")
    if kernels is not None and isinstance(model, TakesKernels):
        model.use_kernels(kernels)
    return model


def takes_kernels(config: ModelConfig) -> bool:
    """Whether other code can compute the layers of the model that a configuration names."""
    return issubclass(MODELS.implementation(config.name), TakesKernels)


@contextmanager
def blaming_model(name: str, what: str) -> Iterator[None]:
    """Say of what the code of a model raises in the body that `model.name` did it, and in which line.

    Args:
        name: `model.name`.
        what: it does wrong then.
    """
    try:
        yield
    except BagpipeError:
        raise
    except ENTRY_ERRORS as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_TORCH)] or frames
        where = f"{Path(own[-1].filename).name}, line {own[-1].lineno}"
        raise ConfigError(f"model.name = {name!r}: {what}: {type(error).__name__}: {error} ({where})") from error
