"""The dense half of DLRM (Naumov et al. 2019, arXiv 1906.00091): everything but the embedding tables.

Legend: `B` samples, `N` dense features, `P` pooled features, `D` embedding width.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.dlrm import DLRMSettings
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.interaction import Interaction, torch_interaction
from bagpipe_hpc.models.linear import LinearLayer, torch_linear

_FLOAT_BYTES = 4


class DLRM(nn.Module):
    """Bottom MLP over the dense features, dot interactions with the embedding rows, top MLP to a logit.

    The first weights are drawn from a generator of its own, on the CPU: they are the same on every device and trainer.
    """

    Settings = DLRMSettings

    def __init__(self, facts: ModelFacts, settings: DLRMSettings) -> None:
        super().__init__()
        interactions = len(facts.pooled) * (len(facts.pooled) + 1) // 2
        bottom = [facts.dense_features, *settings.bottom_mlp, facts.embedding_dim]
        top = [facts.embedding_dim + interactions, *settings.top_mlp, 1]
        self._columns = bottom + top
        generator = torch.Generator().manual_seed(facts.seed)
        self.bottom = _mlp(bottom, generator, last_is_linear=False)
        self.top = _mlp(top, generator, last_is_linear=True)
        self._interaction: Interaction = torch_interaction

    def use_kernels(self, kernels: ModelKernels) -> None:
        """Let other code compute the layers of the MLPs, and what the top MLP reads, from now on."""
        self.bottom.linear = self.top.linear = kernels.linear
        self._interaction = kernels.interaction

    def gradient_groups(self) -> list[list[nn.Parameter]]:
        """The top MLP, whose gradients are there first, then the bottom MLP."""
        return [list(self.top.parameters()), list(self.bottom.parameters())]

    def step_bytes(self, samples: int) -> int:
        """Memory for what each layer reads and computes, and for the gradients beside the widest."""
        return _FLOAT_BYTES * samples * (sum(self._columns) + max(self._columns))

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        """Logits of a click.

        Args:
            dense: float32 `[B, N]`.
            embeddings: of which the pooled ones are used, float32 `[B, P, D]`.

        Returns:
            float32 `[B]`.
        """
        logits: Tensor = self.top(self._interaction(self.bottom(dense), embeddings.stacked()))
        return logits.squeeze(1)


class MLP(nn.Sequential):
    """Linear layers with ReLU between, computed by `linear`; its modules are those that hold and name the weights."""

    linear: LinearLayer

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__(*layers)
        self.linear = torch_linear

    def forward(self, inputs: Tensor) -> Tensor:
        """`[B, inputs of the first layer]` to `[B, outputs of the last one]`, float32."""
        for layer, following in pairwise([*self, None]):
            if isinstance(layer, nn.Linear):
                inputs = self.linear(inputs, layer.weight, layer.bias, isinstance(following, nn.ReLU))
        return inputs.float()


def _mlp(widths: list[int], generator: torch.Generator, *, last_is_linear: bool) -> MLP:
    """An MLP with the first weights of the published DLRM: normal, scaled by fan-in and fan-out."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layer = nn.Linear(inputs, outputs)
        with torch.no_grad():
            layer.weight.normal_(0.0, math.sqrt(2.0 / (inputs + outputs)), generator=generator)
            layer.bias.normal_(0.0, math.sqrt(1.0 / outputs), generator=generator)
        layers += [layer, nn.ReLU()]
    return MLP(layers[:-1] if last_is_linear else layers)
