"""Groups of columns that a search tries: the interface that proposes them, and a network that learns to do so.

The network is that of deep clustering (Xie, Girshick, Farhadi, ICML 2016), learned by REINFORCE as in ClusterP3S
(arXiv 2302.14329): an encoder puts columns into a space of few dimensions, and a column near a centre is
likely to be of its cluster.

Shapes: `C` columns, `A` attributes of a column, `K` clusters, `Z` dimensions.
"""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Assignment = tuple[int, ...]
"""The cluster of each column, `[C]`."""


class Clusters(Protocol):
    """Proposes groups of columns, and is told how good they were."""

    def propose(self) -> Assignment:
        """The next groups to try."""

    def learn(self, assignment: Assignment, reward: float) -> None:
        """Take in the best score of the groups that were tried."""


class LearnedClusters:
    """Groups that a network proposes.

    Args:
        attributes: attributes of the columns, float32 `[C, A]`.
        clusters: number of clusters K.
        seed: seed of the first weights and the proposals.
    """

    WIDTH = 32
    DIMENSIONS = 4
    FIRST_STEPS = 200
    """Steps in which encoder and decoder learn to reconstruct the attributes, before centres are chosen."""
    STEPS_AN_EPISODE = 5
    RATE = 0.01
    KEPT_OF_BASELINE = 0.8
    """Weight of the past in the moving averages of the reward and of its square, from episode to episode."""
    RECONSTRUCTION_WEIGHT = 0.1
    SHARPENING_WEIGHT = 0.1

    def __init__(self, attributes: NDArray[np.float32], clusters: int, seed: int) -> None:
        self._attributes = torch.from_numpy(attributes)
        self._generator = torch.Generator().manual_seed(seed)
        width = attributes.shape[1]
        self._encoder = self._mlp(width, self.DIMENSIONS)
        self._decoder = self._mlp(self.DIMENSIONS, width)
        parameters = [*self._encoder.parameters(), *self._decoder.parameters()]
        first = torch.optim.Adam(parameters, self.RATE)
        for _ in range(self.FIRST_STEPS):
            self._step(first, self._reconstruction())
        self._centres = nn.Parameter(self._first_centres(clusters))
        self._optimizer = torch.optim.Adam([*parameters, self._centres], self.RATE)
        self._mean: float | None = None
        self._variance = 0.0

    def propose(self) -> Assignment:
        """Groups drawn by the network's probabilities."""
        with torch.no_grad():
            drawn = torch.multinomial(self.probabilities(), 1, generator=self._generator)
        return tuple(drawn.flatten().tolist())

    def probabilities(self) -> Tensor:
        """Probability that each column is in each cluster, `[C, K]`: Student's t of the distances to the centres."""
        encoded = self._encoder(self._attributes)
        nearness = 1 / (1 + (encoded[:, None] - self._centres[None]).square().sum(-1))
        probabilities: Tensor = nearness / nearness.sum(1, keepdim=True)
        return probabilities

    def learn(self, assignment: Assignment, reward: float) -> None:
        """Make groups likelier that did better than earlier ones, and clusters sharper."""
        advantage = self._advantage(reward)
        chosen = torch.tensor(assignment)[:, None]
        for step in range(self.STEPS_AN_EPISODE):
            probabilities = self.probabilities()
            loss = self.RECONSTRUCTION_WEIGHT * self._reconstruction()
            loss = loss + self.SHARPENING_WEIGHT * _sharpening(probabilities)
            if step == 0:  # the proposal was drawn with these weights
                loss = loss - advantage * probabilities.gather(1, chosen).log().sum()
            self._step(self._optimizer, loss)

    def _advantage(self, reward: float) -> float:
        """The reward above its moving average, in units of its moving deviation."""
        if self._mean is None:
            self._mean = reward
        above = reward - self._mean
        kept = self.KEPT_OF_BASELINE
        self._variance = kept * self._variance + (1 - kept) * above**2
        self._mean = kept * self._mean + (1 - kept) * reward
        return float(above / self._variance**0.5) if self._variance > 0 else 0.0

    def _reconstruction(self) -> Tensor:
        found: Tensor = (self._decoder(self._encoder(self._attributes)) - self._attributes).square().mean()
        return found

    def _first_centres(self, clusters: int) -> Tensor:
        """First centres: encodings of columns, each the farthest from those before, improved by K-means."""
        with torch.no_grad():
            encoded = self._encoder(self._attributes)
            centres = encoded.mean(0, keepdim=True)
            chosen: list[Tensor] = []
            for _ in range(clusters):
                far = torch.cdist(encoded, torch.stack(chosen) if chosen else centres).min(1).values.argmax()
                chosen.append(encoded[far])
            centres = torch.stack(chosen)
            for _ in range(10):
                nearest = torch.cdist(encoded, centres).argmin(1)
                means = [encoded[nearest == k].mean(0) if (nearest == k).any() else centres[k] for k in range(clusters)]
                centres = torch.stack(means)
        return centres

    def _mlp(self, inputs: int, outputs: int) -> nn.Sequential:
        layers = [nn.Linear(inputs, self.WIDTH), nn.ReLU(), nn.Linear(self.WIDTH, outputs)]
        for layer in layers:
            if isinstance(layer, nn.Linear):
                bound = layer.in_features**-0.5
                nn.init.uniform_(layer.weight, -bound, bound, generator=self._generator)
                nn.init.zeros_(layer.bias)
        return nn.Sequential(*layers)

    @staticmethod
    def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimizer.step()


def _sharpening(probabilities: Tensor) -> Tensor:
    """Divergence of probabilities `[C, K]` from sharper ones with clusters of equal weight (Xie et al., 3.1.3)."""
    with torch.no_grad():
        weight = probabilities.square() / probabilities.sum(0)
        target = weight / weight.sum(1, keepdim=True)
    return (target * (target / probabilities).log()).sum(1).mean()
