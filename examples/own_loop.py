"""A model, a loss and a training loop of your own: `mpirun -n 5 python own_loop.py CONFIG [section.field=value]`."""

import sys

import torch
from torch import Tensor, nn

import bagpipe_hpc


class LogisticRegression(nn.Module):
    """The first number of each row is its weight."""

    def __init__(self, facts, settings):
        super().__init__()
        self.dense = nn.Linear(facts.dense_features, 1)

    def forward(self, dense, embeddings):
        return self.dense(dense).squeeze(1) + embeddings.stacked()[:, :, 0].sum(1)


def focal_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy with little weight on samples that are right already (Lin et al. 2017), one number a sample."""
    chance = torch.sigmoid(logits)
    missed = torch.where(labels == 1, 1 - chance, chance)
    return missed**2 * nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def loop(session) -> None:
    for batch in session:  # the rows that it looks up are here
        logits = session.model(batch.dense, batch.embeddings)
        loss = focal_loss(logits, batch.labels).sum() / batch.batch_samples
        batch.backward(loss)  # gradients are summed over the trainers; rows and weights are updated


if __name__ == "__main__":
    sys.exit(bagpipe_hpc.train(loop, sys.argv[1], ["model.name=__main__:LogisticRegression", *sys.argv[2:]]))
