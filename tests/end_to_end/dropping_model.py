"""A model with dropout over dense features, embeddings and a hidden layer."""

from typing import Any

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.dropout import Dropout
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts


class Dropping(nn.Module):
    """One of its modules is called twice in a pass."""

    def __init__(self, facts: ModelFacts, settings: Any) -> None:  # noqa: ARG002
        super().__init__()
        inputs = facts.dense_features + len(facts.features) * facts.embedding_dim
        self.hidden = nn.Linear(inputs, 24)
        self.logit = nn.Linear(24, 1)
        self.of_inputs, self.of_hidden = Dropout(0.2), Dropout(0.5)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        rows = self.of_inputs(embeddings.stacked()).flatten(1)
        hidden = self.hidden(torch.cat((self.of_inputs(dense), rows), dim=1)).relu()
        logits: Tensor = self.logit(self.of_hidden(hidden))
        return logits.squeeze(1)
