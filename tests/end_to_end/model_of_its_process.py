"""A model that is the same each time one process makes it, and another one in the next process."""

import os

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts

_NUMBERS = 4096
_SMALLEST_STEP = 2.0**-23
"""Of float32 above 1. So many of them are less than the difference in logits at which a run is refused already."""


class OfItsProcess(nn.Module):
    """Multiplies rows by a number of its process, a little above 1."""

    def __init__(self, facts: ModelFacts, settings: object) -> None:  # noqa: ARG002
        super().__init__()
        self.scale = nn.Parameter(torch.full((facts.embedding_dim,), 1 + os.getpid() % _NUMBERS * _SMALLEST_STEP))

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:  # noqa: ARG002
        """Logits."""
        return (embeddings.stacked() * self.scale).sum((1, 2))
