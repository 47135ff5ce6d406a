"""A network that predicts what a group of tables costs a server, from a sum over the tables, so order does not matter.

Shapes: `N` groups, `T` tables, `S` servers, `H` kinds of costs, `Z` numbers of an encoding.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bagpipe_hpc.tools.sharding.networks import first_weights, mlp
from bagpipe_hpc.tools.sharding.task import FEATURES

ENCODING = 32


class CostModel(nn.Module):
    """Encodes each table, adds up the encodings of a group, and reads the costs off the sum.

    Args:
        heads: number H of kinds of costs.
        generator: draws the first weights.
    """

    def __init__(self, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = mlp(FEATURES, 128, ENCODING)
        self.heads = nn.ModuleList(mlp(ENCODING, 64, 1) for _ in range(heads))
        self.scale = 1.0
        first_weights(self, generator)

    def encode(self, features: Tensor) -> Tensor:
        """Encodings `[T, Z]` of tables with features `[T, 21]`."""
        found: Tensor = self.encoder(features)
        return found

    def costs_ms(self, sums: Tensor) -> Tensor:
        """Costs `[..., H]` of groups whose tables' encodings add up to `[..., Z]`; an empty group costs nothing."""
        found = torch.cat([head(sums) for head in self.heads], dim=-1)
        return self.scale * torch.where((sums != 0).any(-1, keepdim=True), found, 0.0)

    def fit_scale(self, ring: "Ring") -> None:
        """Take the mean cost of the samples as the unit, once, so that networks give numbers near 1."""
        if self.scale == 1.0:
            self.scale = ring.mean_of_last() or 1.0

    def predict(self, features: Tensor, members: Tensor) -> Tensor:
        """Costs `[N, H]` in ms of groups, float32 `[N, T]`: 1 where a table is a member."""
        return self.costs_ms(members @ self.encode(features))


class Ring:
    """The newest samples, each of several tensors.

    Args:
        most: how many samples are kept.
    """

    def __init__(self, most: int) -> None:
        self._most, self._added = most, 0
        self._kept: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        """How many samples there are."""
        return min(self._added, self._most)

    def add(self, *sample: Tensor) -> None:
        """Keep a sample; the oldest one makes room."""
        if not self._kept:
            self._kept = tuple(torch.empty((self._most, *part.shape)) for part in sample)
        for kept, part in zip(self._kept, sample, strict=True):
            kept[self._added % self._most] = part
        self._added += 1

    def mean_of_last(self) -> float:
        """The mean of all numbers of the last tensor of each sample."""
        return float(self._kept[-1][: len(self)].mean())

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """`count` samples, drawn at random with replacement and stacked."""
        chosen = torch.randint(len(self), (min(count, len(self)),), generator=generator)
        return tuple(kept[chosen] for kept in self._kept)


def members_of(group: Sequence[int], tables: int) -> Tensor:
    """A group as float32 `[T]`: 1 where a table is a member."""
    members = torch.zeros(tables)
    members[list(group)] = 1
    return members


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor, clip: float | None = None) -> None:
    """A step against the gradient of a loss; the norm of the gradient is clipped to `clip`, if that is given."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
    if clip is not None:
        nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip)
    optimizer.step()


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation of two lists, -1 to 1; 0 where all values of one are equal."""
    ranks = [np.array([sum(x < one) + sum(x <= one) for one in x]) for x in (np.array(first), np.array(second))]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
