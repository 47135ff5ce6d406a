"""In which order gradients are complete is found by a pass, whatever the model."""

import pytest
import torch
from torch import Tensor, nn

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.sums.gradient_order import GradientOrder, gradient_order

FACTS = ModelFacts.one_hot(3, 4, 8, seed=1)


class LooksAtValues(nn.Module):
    """Cannot run without memory; reads its embeddings behind its layer, so they come first in the backward pass."""

    def __init__(self, facts: ModelFacts, _: object) -> None:
        super().__init__()
        self.layer = nn.Linear(facts.dense_features, 1)
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        logits: Tensor = self.layer(dense).squeeze(1)
        return logits * (1.0 if float(dense.sum()) > 1 else 0.5) + embeddings.stacked().sum((1, 2))


class ReadsFirst(LooksAtValues):
    """Reads them before its layer."""

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        read = embeddings.stacked().sum((1, 2))
        logits: Tensor = self.layer(dense).squeeze(1)
        return logits + read


class InOtherGroups(LooksAtValues):
    """Its groups are the bias, the weight, and a weight that is never used."""

    def gradient_groups(self) -> list[list[nn.Parameter]]:
        return [[self.layer.bias], [self.layer.weight], [self.unused]]


class Failing(LooksAtValues):
    def forward(self, *_: object) -> Tensor:
        raise RuntimeError("planted failure")


BOTTOM = 3 * 512 + 512 + 512 * 256 + 256 + 256 * 64 + 64 + 64 * 8 + 8
TOP = 18 * 512 + 512 + 512 * 256 + 256 + 256 + 1


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("dlrm", GradientOrder(BOTTOM + TOP, BOTTOM, (BOTTOM + TOP,), (0,), before_rows=BOTTOM)),
        (f"{__name__}:LooksAtValues", GradientOrder(5, 4, (5,), (0,), before_rows=4)),
        (f"{__name__}:ReadsFirst", GradientOrder(5, 0, (5,), (0,))),
        (f"{__name__}:InOtherGroups", GradientOrder(5, 4, (1, 3, 1), (3, 0, 0), before_rows=4)),
    ],
)
def test_weights_are_counted(name: str, order: GradientOrder) -> None:
    assert gradient_order(ModelConfig(name=name, embedding_dim=8), FACTS) == order


def test_a_model_that_fails_is_named() -> None:
    with pytest.raises(ConfigError, match="Failing"):
        gradient_order(ModelConfig(name=f"{__name__}:Failing", embedding_dim=8), FACTS)
