"""What begins a step and a pass: no gradients, and a model whose modules are all in training mode."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.step.compute import ComputeParts


def parts_of(model: nn.Module, dropout: Any = ()) -> Any:
    """As much of the parts as begins a pass."""
    device = SimpleNamespace(to_device=torch.from_numpy)
    weights = tuple(model.parameters())
    return SimpleNamespace(model=model, modules=tuple(model.modules()), weights=weights, dropout=dropout, device=device)


def no_samples() -> NDArray[np.int64]:
    raise AssertionError("nothing is drawn")


@pytest.mark.parametrize("part", ["", "0", "1"])
def test_a_pass_begins_in_training_mode(part: str) -> None:
    """Whatever a loop has done to the model or a part of it."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.get_submodule(part).eval()
    ComputeParts.begin_pass(parts_of(model), 1, no_samples)
    assert all(module.training for module in model.modules())


def test_masks_are_drawn_for_the_samples_of_the_pass() -> None:
    drawn: list[tuple[int, list[int]]] = []

    class Masks:
        def begin(self, step: int, samples: torch.Tensor) -> None:
            drawn.append((step, samples.tolist()))

    ComputeParts.begin_pass(parts_of(nn.Linear(1, 1), Masks()), 7, lambda: np.arange(3))
    assert drawn == [(7, [0, 1, 2])]


def test_a_step_begins_without_gradients() -> None:
    model = nn.Linear(3, 1)
    model(torch.ones(2, 3)).sum().backward()
    ComputeParts.clear_gradients(parts_of(model))
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: setattr(model, "weight", nn.Parameter(torch.zeros(1, 3))), "weight is new, or of another type"),
        (lambda model: setattr(model, "late", nn.Linear(1, 1)), r"late\.weight is new, or of another type"),
        (lambda model: model.double(), "weight is new, or of another type"),
        (lambda model: setattr(model, "bias", None), "it has 1 of 2"),
    ],
    ids=["replaced", "added", "doubles", "removed"],
)
def test_other_weights_than_those_of_the_start_are_refused(change: Callable[[nn.Module], object], message: str) -> None:
    """Nobody would sum or update them, and a checkpoint would hold them."""
    model = nn.Linear(3, 1)
    parts = parts_of(model)
    model.load_state_dict(nn.Linear(3, 1).state_dict())
    ComputeParts.require_own_weights(parts)
    change(model)
    with pytest.raises(ConfigError, match=f"^the model has other weights than it was made with: {message}"):
        ComputeParts.require_own_weights(parts)
