"""Every model refuses by name the inputs that it cannot use, and takes any others: the trial of a run passes."""

import pytest
import torch

from bagpipe_hpc.config.doors import MODELS
from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.facts import FeatureFacts, ModelFacts
from bagpipe_hpc.models.size import measure_model
from bagpipe_hpc.models.trial import try_model

CPU = torch.device("cpu")
WIDTH = 5
POOLED = (FeatureFacts("user", WIDTH), FeatureFacts("item", WIDTH), FeatureFacts("genres", WIDTH, "mean", 4))
SEQUENCES = (FeatureFacts("history", WIDTH, "sequence", 6), FeatureFacts("carts", WIDTH, "sequence", 3))
OF_ONE_VECTOR = ("dlrm",)


def config(name: str, width: int = WIDTH) -> ModelConfig:
    return ModelConfig(name=name, embedding_dim=width)


@pytest.mark.parametrize("name", OF_ONE_VECTOR)
@pytest.mark.parametrize("features", [POOLED, POOLED[:1]], ids=["features", "one feature"])
@pytest.mark.parametrize(("dense", "labels"), [(3, 1), (0, 1), (0, 3)])
def test_any_inputs_will_do(name: str, features: tuple[FeatureFacts, ...], dense: int, labels: int) -> None:
    facts = ModelFacts(dense, features, seed=2, labels=labels)
    try_model(config(name), facts, CPU)
    assert measure_model(config(name), facts, 10).step_bytes > 0


@pytest.mark.parametrize("name", OF_ONE_VECTOR)
def test_sequences_are_refused_with_the_cure(name: str) -> None:
    facts = ModelFacts(3, (*POOLED, *SEQUENCES), seed=1)
    cure = r'set features\.pooling_of = \{ history = "sum", carts = "sum" \}, or use model\.name = \'din\'$'
    with pytest.raises(ConfigError, match=rf"^model\.name = '{name}': .*the data has history, carts; {cure}"):
        try_model(config(name), facts, CPU)


def test_every_model_is_tried_here() -> None:
    assert set(OF_ONE_VECTOR) | {"din"} >= set(MODELS.entries)
