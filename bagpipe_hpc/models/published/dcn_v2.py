"""DCN v2 (Wang et al. 2021, arXiv 2008.13535): a cross network with matrices before an MLP, or beside it.

Legend: `B` samples, `N` dense features, `P` pooled features, `D` embedding width, `K` labels, `I` = N + P D inputs.
"""

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import DCNv2Settings
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.cross import MatrixCross
from bagpipe_hpc.models.published.inputs import as_logits, refuse_sequences, side_by_side, side_by_side_width
from bagpipe_hpc.models.published.mlp import glorot_normal, make_mlp, use_linear


class DCNv2(nn.Module):
    """Stacked, the MLP reads what the cross network makes of the I inputs; parallel, both read the inputs.

    The logits are a linear layer over the MLP's outputs; parallel, over those of the cross network as well.
    """

    Settings = DCNv2Settings

    def __init__(self, facts: ModelFacts, settings: DCNv2Settings) -> None:
        super().__init__()
        refuse_sequences("dcn_v2", facts)
        generator = torch.Generator().manual_seed(facts.seed)
        inputs = side_by_side_width(facts)
        self._is_stacked = settings.structure == "stacked"
        self.cross = MatrixCross(inputs, settings.cross_layers, settings.cross_rank, generator)
        self.deep = make_mlp([inputs, *settings.deep_mlp], glorot_normal, generator, last_is_linear=False)
        deep = [inputs, *settings.deep_mlp][-1]
        last = [deep if self._is_stacked else inputs + deep, facts.labels]
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
        crossed = self.cross(inputs)
        outputs = self.deep(crossed) if self._is_stacked else torch.cat((crossed, self.deep(inputs)), dim=1)
        return as_logits(self.last(outputs))
