"""DeepFM (Guo et al. 2017, arXiv 1703.04247): a factorization machine beside an MLP that reads the same factors.

Legend: `B` samples, `N` dense features, `P` pooled features, `D` embedding width, `K` labels, `F` = D - K factors.
"""

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import DeepFMSettings
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.first_order import FirstOrder
from bagpipe_hpc.models.published.inputs import as_logits, refuse_sequences, require_factors
from bagpipe_hpc.models.published.mlp import glorot_normal, make_mlp, use_linear

_FACTOR_SCALE = 0.01


class DeepFM(nn.Module):
    """First-order terms, dot products of the factors of every pair of fields, and an MLP over the factors.

    A field is a pooled feature, whose factors are in its row, or a dense one, whose factors are the model's own, times
    its value (eq. 2). The MLP reads the values themselves: the factors of a value are a linear map of it, which the
    first layer makes as well. Several labels have first-order weights and outputs of the MLP of their own, and share
    the pairs.
    """

    Settings = DeepFMSettings

    def __init__(self, facts: ModelFacts, settings: DeepFMSettings) -> None:
        super().__init__()
        refuse_sequences("deepfm", facts)
        require_factors("deepfm", facts)
        generator = torch.Generator().manual_seed(facts.seed)
        factors = facts.embedding_dim - facts.labels  # the same for all pairs
        inputs = facts.dense_features + len(facts.pooled) * factors
        self.first_order = FirstOrder(facts)
        if facts.dense_features:
            of_dense = torch.empty(facts.dense_features, factors)
            self.dense_factors = nn.Parameter(of_dense.normal_(0.0, _FACTOR_SCALE, generator=generator))
        self.deep = make_mlp([inputs, *settings.deep_mlp, facts.labels], glorot_normal, generator, last_is_linear=True)

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
        first_order, (factors,) = self.first_order(dense, embeddings.stacked())
        deep = self.deep(torch.cat((dense, factors.flatten(1)), dim=1))
        return as_logits(first_order + self._pairs(dense, factors).unsqueeze(1) + deep)

    def _pairs(self, dense: Tensor, factors: Tensor) -> Tensor:
        """The sum of all dot products: half the difference of the squared sum and the sum of squares, `[B]`."""
        sums, squares = factors.sum(1), factors.square().sum(1)
        if dense.shape[1]:
            sums = sums + dense @ self.dense_factors
            squares = squares + dense.square() @ self.dense_factors.square()
        return (sums.square() - squares).sum(1) / 2
