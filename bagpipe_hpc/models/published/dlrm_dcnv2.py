"""DLRM-DCNv2, MLPerf's recommendation model since training v3.0: DLRM with the low-rank cross network of DCN v2.

After `DLRM_DCN` of TorchRec, which MLPerf's reference trains (github.com/mlcommons/training,
recommendation_v2/torchrec_dlrm).

Legend: `B` samples, `N` dense features, `P` pooled features, `D` embedding width, `K` labels.
"""

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import DLRMDCNv2Settings
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.cross import MatrixCross
from bagpipe_hpc.models.published.inputs import as_logits, refuse_sequences, side_by_side
from bagpipe_hpc.models.published.mlp import make_mlp, torch_first_weights, use_linear


class DLRMDCNv2(nn.Module):
    """Bottom MLP over the dense features, cross network over its D outputs and the embeddings, top MLP to the logits.

    Without dense features there is no bottom MLP, and the cross network reads the embeddings alone.
    """

    Settings = DLRMDCNv2Settings

    def __init__(self, facts: ModelFacts, settings: DLRMDCNv2Settings) -> None:
        super().__init__()
        refuse_sequences("dlrm_dcnv2", facts)
        generator = torch.Generator().manual_seed(facts.seed)
        width = facts.embedding_dim
        bottom = [facts.dense_features, *settings.bottom_mlp, width] if facts.dense_features else []
        inputs = width * (len(facts.pooled) + (1 if bottom else 0))
        self.bottom = make_mlp(bottom, torch_first_weights, generator, last_is_linear=False)
        self.cross = MatrixCross(inputs, settings.cross_layers, settings.cross_rank, generator)
        top = [inputs, *settings.top_mlp, facts.labels]
        self.top = make_mlp(top, torch_first_weights, generator, last_is_linear=True)

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
        # An MLP without layers gives back its inputs: the N = 0 dense features.
        return as_logits(self.top(self.cross(side_by_side(self.bottom(dense), embeddings))))
