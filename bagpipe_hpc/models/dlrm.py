"""The dense half of DLRM (Naumov et al. 2019, arXiv 1906.00091): everything but the embedding tables.

Legend: `B` samples, `N` dense features, `F` sparse features, `D` embedding width.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.models.dense_size import layer_widths
from bagpipe_hpc.models.interaction import Interaction, torch_interaction
from bagpipe_hpc.models.linear import LinearLayer, torch_linear


class DLRM(nn.Module):
    """Bottom MLP over the dense features, dot interactions with the embedding rows, top MLP to a logit.

    Args:
        config: widths.
        dense_features: number N.
        sparse_features: number F.
        seed: of the first weights, which are drawn on the CPU and so are the same on every device and trainer.
        linear: computes the layers of the MLPs.
        interaction: computes what the top MLP reads.
    """

    def __init__(
        self,
        config: ModelConfig,
        dense_features: int,
        sparse_features: int,
        seed: int,
        linear: LinearLayer = torch_linear,
        interaction: Interaction = torch_interaction,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        bottom, top = layer_widths(config, dense_features, sparse_features)
        self.bottom = _mlp(bottom, generator, linear, last_is_linear=False)
        self.top = _mlp(top, generator, linear, last_is_linear=True)
        self._interaction = interaction

    def use_linear(self, linear: LinearLayer) -> None:
        """Let other code compute the layers of the MLPs from now on."""
        self.bottom.linear = self.top.linear = linear

    def forward(self, dense: Tensor, embeddings: Tensor) -> Tensor:
        """Logits of a click.

        Args:
            dense: float32 `[B, N]`.
            embeddings: float32 `[B, F, D]`.

        Returns:
            float32 `[B]`.
        """
        logits: Tensor = self.top(self._interaction(self.bottom(dense), embeddings))
        return logits.squeeze(1)


class MLP(nn.Sequential):
    """Linear layers with ReLU between, computed by `linear`; its modules are those that hold and name the weights."""

    linear: LinearLayer

    def __init__(self, layers: list[nn.Module], linear: LinearLayer) -> None:
        super().__init__(*layers)
        self.linear = linear

    def forward(self, inputs: Tensor) -> Tensor:
        """`[B, inputs of the first layer]` to `[B, outputs of the last one]`, float32."""
        for layer, following in pairwise([*self, None]):
            if isinstance(layer, nn.Linear):
                inputs = self.linear(inputs, layer.weight, layer.bias, isinstance(following, nn.ReLU))
        return inputs.float()


def _mlp(widths: list[int], generator: torch.Generator, linear: LinearLayer, *, last_is_linear: bool) -> MLP:
    """An MLP with the first weights of the published DLRM: normal, scaled by fan-in and fan-out."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layer = nn.Linear(inputs, outputs)
        with torch.no_grad():
            layer.weight.normal_(0.0, math.sqrt(2.0 / (inputs + outputs)), generator=generator)
            layer.bias.normal_(0.0, math.sqrt(1.0 / outputs), generator=generator)
        layers += [layer, nn.ReLU()]
    return MLP(layers[:-1] if last_is_linear else layers, linear)


def click_loss(logits: Tensor, labels: Tensor, batch_samples: int) -> Tensor:
    """A slice's share of the global batch's mean binary cross-entropy: float32 `[B]` each, to a scalar.

    Dividing by the size of the whole batch, not of the slice, gives every trainer gradients that simply add up.
    """
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    return loss / batch_samples
