"""The dense half of DLRM (Naumov et al. 2019, arXiv 1906.00091): everything but the embedding tables.

Legend: `B` samples, `N` dense features, `P` pooled features, `D` embedding width, `K` labels.
"""

import math

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.layers.interaction import Interaction, torch_interaction
from bagpipe_hpc.models.published.inputs import as_logits, refuse_sequences
from bagpipe_hpc.models.published.mlp import dlrm_first_weights, make_mlp, use_linear

_FLOAT_BYTES = 4


class DLRM(nn.Module):
    """Bottom MLP over the dense features, dot interactions with the embedding rows, top MLP to the logits.

    Without dense features there is no bottom MLP. A vector that is learned stands for its output: what an MLP makes of
    no inputs is a constant. Its dot products with the embeddings are first-order terms.

    The first weights are drawn from a generator of its own, on the CPU: they are the same on every device and trainer.
    """

    Settings = DLRMSettings

    def __init__(self, facts: ModelFacts, settings: DLRMSettings) -> None:
        super().__init__()
        refuse_sequences("dlrm", facts)
        width = facts.embedding_dim
        interactions = len(facts.pooled) * (len(facts.pooled) + 1) // 2
        bottom = [facts.dense_features, *settings.bottom_mlp, width] if facts.dense_features else [width]
        top = [width + interactions, *settings.top_mlp, facts.labels]
        self._columns = bottom + top
        self._has_bottom = facts.dense_features > 0
        generator = torch.Generator().manual_seed(facts.seed)
        if self._has_bottom:
            self.bottom = make_mlp(bottom, dlrm_first_weights, generator, last_is_linear=False)
        else:
            self.constant = nn.Parameter(torch.empty(width).normal_(0.0, math.sqrt(1 / width), generator=generator))
        self.top = make_mlp(top, dlrm_first_weights, generator, last_is_linear=True)
        self._interaction: Interaction = torch_interaction

    def use_kernels(self, kernels: ModelKernels) -> None:
        """Let other code compute the layers of the MLPs, and what the top MLP reads, from now on."""
        use_linear(self, kernels.linear)
        self._interaction = kernels.interaction

    def step_bytes(self, samples: int) -> int:
        """Bytes for what each layer reads and computes, and for one more gradient as large as the widest."""
        return _FLOAT_BYTES * samples * (sum(self._columns) + max(self._columns))

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        """Logits.

        Args:
            dense: float32 `[B, N]`.
            embeddings: of which the pooled ones are used, float32 `[B, P, D]`.

        Returns:
            float32 `[B]`; of several labels `[B, K]`.
        """
        bottom = self.bottom(dense) if self._has_bottom else self.constant.expand(dense.shape[0], -1)
        return as_logits(self.top(self._interaction(bottom, embeddings.stacked())))
