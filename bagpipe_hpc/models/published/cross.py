"""Cross networks: layers that multiply what comes in by the first inputs, number by number.

Layer l makes `x[l + 1] = x[0] * f(x[l]) + x[l]`. So x[l] holds products of up to l + 1 inputs.

Legend: `B` samples, `I` inputs, `L` layers, `R` rank.
"""

import math

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.published.mlp import MLP, glorot_normal


class VectorCross(nn.Module):
    """The layers of Deep & Cross (Wang et al. 2017, eq. 3): `f(x) = x . w`, a number, and a bias is added.

    Args:
        inputs: their number I.
        layers: their number L.
        generator: of the weights, normal, scaled by fan-in and fan-out; biases are 0.
    """

    def __init__(self, inputs: int, layers: int, generator: torch.Generator) -> None:
        super().__init__()
        scale = math.sqrt(2.0 / (inputs + 1))
        self.weights = nn.Parameter(torch.empty(layers, inputs).normal_(0.0, scale, generator=generator))
        self.biases = nn.Parameter(torch.zeros(layers, inputs))

    def forward(self, first: Tensor) -> Tensor:
        """Float32 `[B, I]` to `[B, I]`."""
        crossed = first
        for weight, bias in zip(self.weights, self.biases, strict=True):
            crossed = first * (crossed @ weight).unsqueeze(1) + bias + crossed
        return crossed


class MatrixCross(nn.Module):
    """The layers of DCN v2 (Wang et al. 2021, eq. 1 and 2): `f(x) = W x + b`, or `U V x + b` with a low rank.

    Args:
        inputs: their number I.
        layers: their number L.
        rank: columns R of U; 0 for a whole matrix W.
        generator: of the weights, normal, scaled by fan-in and fan-out; biases are 0.
    """

    def __init__(self, inputs: int, layers: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(layers):
            layer = MLP([nn.Linear(inputs, rank, bias=False)] if rank else [])
            layer.append(nn.Linear(rank or inputs, inputs))
            with torch.no_grad():
                for linear in layer:
                    assert isinstance(linear, nn.Linear)
                    glorot_normal(linear, generator)
            self.layers.append(layer)

    def forward(self, first: Tensor) -> Tensor:
        """Float32 `[B, I]` to `[B, I]`."""
        crossed = first
        for layer in self.layers:
            crossed = first * layer(crossed) + crossed
        return crossed
