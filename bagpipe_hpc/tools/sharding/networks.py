"""Small networks whose first weights a generator draws."""

from itertools import pairwise

import torch
from torch import nn


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def first_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights anew, uniform between minus and plus 1/sqrt(inputs); biases are 0."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            bound = parameter.shape[1] ** -0.5
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        else:
            nn.init.zeros_(parameter)
