"""A model of your own, a factorization machine (Rendle 2010): `model.name = "own_model:FactorizationMachine"`.

Put its folder on PYTHONPATH, or start the run from it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts


class FactorizationMachine(nn.Module):
    """The first number of each row is its weight, the others are its factors; an MLP makes one more vector."""

    @dataclass(frozen=True)
    class Settings:
        hidden: int = 64
        """Width of the hidden layer over the dense features."""

    def __init__(self, facts: ModelFacts, settings: Settings) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(facts.dense_features, settings.hidden), nn.ReLU())
        self.vector = nn.Linear(settings.hidden, facts.embedding_dim)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        vectors = torch.cat((self.vector(self.dense(dense)).unsqueeze(1), embeddings.stacked()), dim=1)
        factors = vectors[:, :, 1:]
        pairs = factors.sum(1).square() - factors.square().sum(1)
        return vectors[:, :, 0].sum(1) + pairs.sum(1) / 2
