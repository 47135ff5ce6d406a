"""The second cure of the peers: linear layers through oneDNN, forward and backward.

On AMD, torch's default for float32, MKL, takes its path without AVX-512.
"""

from typing import Any

import torch
from torch import Tensor, nn


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """`left [n, k]` times the transpose of `right [m, k]`, plus `bias [m]`."""
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (inputs, weight), (gradient,) = ctx.saved_tensors, gradients
        for_inputs = _product(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        return for_inputs, _product(gradient.t(), inputs.t()), gradient.sum(0)


class OneDnnLinear(nn.Linear):
    """`nn.Linear` with the same parameters."""

    def forward(self, inputs: Tensor) -> Tensor:
        """float32 `[n, in]` to `[n, out]`."""
        return _Linear.apply(inputs, self.weight, self.bias)


def use_onednn(model: nn.Module) -> None:
    """Let every linear layer of a model compute through oneDNN."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = OneDnnLinear
