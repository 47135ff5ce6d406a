"""A model that is the same each time one process makes it, and another one in the next process."""

import os

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts


class OfItsProcess(nn.Module):
    """Multiplies rows by the number of its process."""

    def __init__(self, facts: ModelFacts, settings: object) -> None:  # noqa: ARG002
        super().__init__()
        self.scale = nn.Parameter(torch.full((facts.embedding_dim,), float(os.getpid())))

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:  # noqa: ARG002
        """Logits."""
        return (embeddings.stacked() * self.scale).sum((1, 2))
