"""Deep & Cross (Wang et al. 2017, arXiv 1708.05123): a cross network beside an MLP.

Legend: `B` samples, `N` dense features, `P` pooled features, `D` embedding width, `K` labels, `I` = N + P D inputs.
"""

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import DCNSettings
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.cross import VectorCross
from bagpipe_hpc.models.published.inputs import as_logits, refuse_sequences, side_by_side, side_by_side_width
from bagpipe_hpc.models.published.mlp import glorot_normal, make_mlp, use_linear


class DCN(nn.Module):
    """Cross network and MLP both read all I inputs; the logits are a linear layer over the outputs of both."""

    Settings = DCNSettings

    def __init__(self, facts: ModelFacts, settings: DCNSettings) -> None:
        super().__init__()
        refuse_sequences("dcn", facts)
        generator = torch.Generator().manual_seed(facts.seed)
        inputs = side_by_side_width(facts)
        self.cross = VectorCross(inputs, settings.cross_layers, generator)
        self.deep = make_mlp([inputs, *settings.deep_mlp], glorot_normal, generator, last_is_linear=False)
        last = [inputs + settings.deep_mlp[-1], facts.labels]
        self.last = make_mlp(last, glorot_normal, generator, last_is_linear=True)

    def use_kernels(self, kernels: ModelKernels) -> None:
        """Let other code compute the linear layers from now on."""
        use_linear(self, kernels.linear)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        """Logits.

        Args:
            dense: float32 `[B, N]`.
            embeddings: of which the pooled ones are used, float32 `[B, P, D]`.

        Returns:
            float32 `[B]`; of several labels `[B, K]`.
        """
        inputs = side_by_side(dense, embeddings)
        return as_logits(self.last(torch.cat((self.cross(inputs), self.deep(inputs)), dim=1)))
