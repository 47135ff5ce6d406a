"""Wide & Deep (Cheng et al. 2016, arXiv 1606.07792): a logistic regression beside an MLP.

Products of features, the paper's cross-product transformations, are features of their own in the data.

Legend: `B` samples, `N` dense features, `P` pooled features of a width, `D` that width, `K` labels.
"""

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import WideDeepSettings
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.first_order import FirstOrder
from bagpipe_hpc.models.published.inputs import as_logits, refuse_sequences, require_factors, side_by_side_width
from bagpipe_hpc.models.published.mlp import glorot_normal, make_mlp, use_linear


class WideDeep(nn.Module):
    """The wide part takes K numbers of each row, the deep part the other D - K, beside the dense features."""

    Settings = WideDeepSettings

    def __init__(self, facts: ModelFacts, settings: WideDeepSettings) -> None:
        super().__init__()
        refuse_sequences("wide_deep", facts)
        require_factors("wide_deep", facts)
        generator = torch.Generator().manual_seed(facts.seed)
        inputs = side_by_side_width(facts) - len(facts.pooled) * facts.labels
        self.wide = FirstOrder(facts)
        self.deep = make_mlp([inputs, *settings.deep_mlp, facts.labels], glorot_normal, generator, last_is_linear=True)

    def use_kernels(self, kernels: ModelKernels) -> None:
        """Let other code compute the linear layers from now on."""
        use_linear(self, kernels.linear)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        """Logits.

        Args:
            dense: float32 `[B, N]`.
            embeddings: of which the pooled ones are used, of each width float32 `[B, P, D]`.

        Returns:
            float32 `[B]`; of several labels `[B, K]`.
        """
        wide, vectors = self.wide(dense, *embeddings.stacked_by_width().values())
        flat = [of_width.flatten(1) for of_width in vectors]
        return as_logits(wide + self.deep(torch.cat((dense, *flat), dim=1)))
