"""A small model with sequences, for runs on ragged features."""

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts


class GatedSequences(nn.Module):
    """A linear layer over the dense features, all pooled vectors, and of each sequence the sum of its gated rows."""

    def __init__(self, facts: ModelFacts, _: object) -> None:
        super().__init__()
        width = facts.embedding_dim
        self.names = [feature.name for feature in facts.sequences]
        self.gate = nn.Linear(width, 1)
        inputs = facts.dense_features + (len(facts.pooled) + len(self.names)) * width
        self.last = nn.Linear(inputs, facts.labels)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        """Logits, float32 `[B]` or `[B, K]`."""
        parts = [dense, embeddings.concatenated()]
        for name in self.names:
            rows, _ = embeddings.sequence(name).padded()
            parts.append((torch.sigmoid(self.gate(rows)) * rows).sum(1))
        logits: Tensor = self.last(torch.cat(parts, 1))
        return logits.squeeze(1) if logits.shape[1] == 1 else logits
