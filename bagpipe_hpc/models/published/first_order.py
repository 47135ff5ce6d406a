"""First-order terms: a logistic regression over dense features and look-ups.

The weight of a look-up is the first number of its row, so it is fetched, kept and updated with the others. With several
labels it is the first K numbers, one for each.

Legend: `B` samples, `N` dense features, `P` pooled features of a width, `D` that width, `K` labels.
"""

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.facts import ModelFacts


class FirstOrder(nn.Module):
    """Sums first-order weights: a bias, each dense feature by its weight, a weight of each look-up.

    A pooled feature gives the sum or the mean of the weights of its ids, as it does of their other numbers. Bias and
    weights of dense features are 0 at first.
    """

    def __init__(self, facts: ModelFacts) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(facts.labels))
        if facts.dense_features:
            self.weight = nn.Parameter(torch.zeros(facts.labels, facts.dense_features))

    def forward(self, dense: Tensor, *rows: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Take the first-order weights off the rows.

        Args:
            dense: float32 `[B, N]`.
            rows: of each width, float32 `[B, P, D]`.

        Returns:
            The sums, float32 `[B, K]`, and what is left of the rows of each width, `[B, P, D - K]`.
        """
        labels = len(self.bias)
        sums: Tensor = self.bias
        for of_width in rows:
            sums = sums + of_width[:, :, :labels].sum(1)
        if dense.shape[1]:
            sums = sums + nn.functional.linear(dense, self.weight)
        return sums, [of_width[:, :, labels:] for of_width in rows]
