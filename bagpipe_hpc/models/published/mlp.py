"""MLPs, whose layers other code may compute, and their first weights.

Legend: `B` samples.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.layers.linear import LinearLayer, torch_linear

FirstWeights = Callable[[nn.Linear, torch.Generator], None]
"""Fills the weights and biases of a layer."""


class MLP(nn.Sequential):
    """Linear layers with activations between, computed by `linear`; its modules hold and name the weights."""

    linear: LinearLayer

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__(*layers)
        self.linear = torch_linear

    def forward(self, inputs: Tensor) -> Tensor:
        """`[B, inputs of the first layer]` to `[B, outputs of the last one]`, float32."""
        for layer, following in pairwise([*self, None]):
            if isinstance(layer, nn.Linear):
                bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
                inputs = self.linear(inputs, layer.weight, bias, isinstance(following, nn.ReLU))
            elif layer is not None and not isinstance(layer, nn.ReLU):
                inputs = layer(inputs.float())
        return inputs.float()


def make_mlp(
    widths: Sequence[int],
    first_weights: FirstWeights,
    generator: torch.Generator,
    *,
    last_is_linear: bool,
    activation: Callable[[int], nn.Module] = lambda _: nn.ReLU(),
) -> MLP:
    """Make an MLP.

    Args:
        widths: of its inputs, its hidden layers and its outputs.
        first_weights: fills each layer.
        generator: draws the first weights.
        last_is_linear: no activation follows the last layer.
        activation: makes the activation that follows a layer, given the layer's width.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layer = nn.Linear(inputs, outputs)
        if not layer.weight.is_meta:  # to "fill" weights without memory, torch runs slow code
            with torch.no_grad():
                first_weights(layer, generator)
        layers += [layer, activation(outputs)]
    return MLP(layers[:-1] if last_is_linear else layers)


def use_linear(model: nn.Module, linear: LinearLayer) -> None:
    """Let other code compute the layers of all MLPs of a model from now on."""
    for module in model.modules():
        if isinstance(module, MLP):
            module.linear = linear


def dlrm_first_weights(layer: nn.Linear, generator: torch.Generator) -> None:
    """As in the published DLRM: weights normal, scaled by fan-in and fan-out; biases normal, scaled by fan-out."""
    layer.weight.normal_(0.0, math.sqrt(2.0 / (layer.in_features + layer.out_features)), generator=generator)
    layer.bias.normal_(0.0, math.sqrt(1.0 / layer.out_features), generator=generator)


def glorot_normal(layer: nn.Linear, generator: torch.Generator) -> None:
    """Weights normal, scaled by fan-in and fan-out (Glorot and Bengio 2010); biases 0."""
    layer.weight.normal_(0.0, math.sqrt(2.0 / (layer.in_features + layer.out_features)), generator=generator)
    if layer.bias is not None:
        layer.bias.zero_()


def torch_first_weights(layer: nn.Linear, generator: torch.Generator) -> None:
    """As torch fills `nn.Linear`: weights and biases uniform, scaled by fan-in."""
    bound = 1.0 / math.sqrt(layer.in_features)
    layer.weight.uniform_(-bound, bound, generator=generator)
    layer.bias.uniform_(-bound, bound, generator=generator)
