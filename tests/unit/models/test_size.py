"""A model's weights and memory are known before any of it is allocated, and are those that torch takes."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.config.schema import ModelConfig, OptimizerConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer
from bagpipe_hpc.models.optimizer.trial import state_numbers
from bagpipe_hpc.models.size import ModelSize, count_weights, measure_model, weights_bytes

SMALL = ModelConfig(embedding_dim=4, settings=DLRMSettings(bottom_mlp=(40,), top_mlp=(50, 30)))
FACTS = ModelFacts.one_hot(dense_features=3, sparse_features=2, embedding_dim=4, seed=1)
LOOK_UPS = 3 * 2 * 4
"""Numbers of a sample: three copies of what its look-ups give."""


class Concatenation(nn.Module):
    """A layer over all numbers of a sample; it knows nothing of its own size."""

    def __init__(self, facts: ModelFacts, settings: object) -> None:  # noqa: ARG002
        super().__init__()
        self.hidden = nn.Linear(facts.dense_features + len(facts.pooled) * facts.embedding_dim, 7)
        self.logit = nn.Linear(7, 1)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        logits: Tensor = self.logit(self.hidden(torch.cat((dense, embeddings.concatenated()), 1)).relu())
        return logits.squeeze(1)


class SaysItsSize(Concatenation):
    """What `step_bytes` returns is a class's own."""

    said: object = 1000

    def step_bytes(self, samples: int) -> object:
        return self.said if self.said is None else samples * self.said  # type: ignore[operator]


class Negative(SaysItsSize):
    said = -5


class NoNumber(SaysItsSize):
    said = float("nan")


class NoBytes(SaysItsSize):
    said = None


class NoLogits(Concatenation):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:  # noqa: ARG002
        return None  # type: ignore[return-value]


class LooksAtValues(Concatenation):
    """What cannot run without values."""

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        scale = 2.0 if dense.sum().item() > 1e9 else 1.0
        return scale * super().forward(dense, embeddings)


def named(kind: type) -> ModelConfig:
    return ModelConfig(name=f"{__name__}:{kind.__name__}", embedding_dim=4)


@pytest.mark.parametrize(("bottom", "top"), [((512, 256, 64), (512, 256)), ((), (8,))])
def test_weights_are_those_of_the_model(bottom: tuple[int, ...], top: tuple[int, ...]) -> None:
    config = ModelConfig(settings=DLRMSettings(bottom_mlp=bottom, top_mlp=top))
    facts = ModelFacts.one_hot(13, 26, 16, seed=1)
    assert measure_model(config, facts, 1).weights == count_weights(build_model(config, facts))


def test_a_model_larger_than_any_memory_is_measured() -> None:
    size = measure_model(ModelConfig(settings=DLRMSettings(top_mlp=(10**9, 10**9))), FACTS, 10)
    assert size.weights > 10**18
    with pytest.raises(
        ConfigError, match=r"model\.name = 'dlrm': cannot be made: RuntimeError: .*overflow.*mlp\.py, line"
    ):
        measure_model(ModelConfig(settings=DLRMSettings(top_mlp=(2**31 - 1, 2**31 - 1))), FACTS, 10)


@pytest.mark.parametrize(
    ("dense", "options"), [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adagrad", {}), ("Adam", {}), ("Adafactor", {})]
)
def test_memory_of_weights_gradients_and_state(dense: str, options: dict[str, float]) -> None:
    model = build_model(SMALL, FACTS)
    settings = OptimizerConfig(dense=dense, dense_options=options)
    optimizer = dense_optimizer(settings, model.parameters())
    weights = list(model.parameters())
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    state = [value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, torch.Tensor)]
    held = 2 * sum(weight.nbytes for weight in weights) + sum(value.nbytes for value in state)
    counted = weights_bytes(count_weights(model), state_numbers(settings), 1, deterministic=True)
    assert counted == pytest.approx(held, rel=0.1)  # a step's number for each tensor; Adafactor's rows and columns


def test_several_trainers_sum_in_buffers() -> None:
    def copies(sums: str, *, deterministic: bool) -> list[float]:
        return [
            weights_bytes(1000, 0, trainers, deterministic=deterministic, sums=sums) / 4000
            for trainers in (1, 2, 4, 64, 256)
        ]

    assert copies("horovod", deterministic=False) == [2, 3, 3, 3, 3]
    assert copies("horovod", deterministic=True) == [2, 3, 7, 67, 259]
    assert copies("mpi", deterministic=False) == pytest.approx(
        [2, 4, *(4 + 1 / trainers for trainers in (4, 64, 256))], 1e-3
    )
    of_grids = [3 / 2 * (1 + 1 / 2), 9 / 8 * (1 + 1 / 8), 9 / 8 * (1 + 1 / 8) + 1 / 64 * 5 / 4]
    for sums in ("grid", "auto"):
        assert copies(sums, deterministic=False) == pytest.approx(
            [2, 4, *(3 + gathered for gathered in of_grids)], 1e-3
        )
    for sums in ("mpi", "grid", "auto"):
        assert copies(sums, deterministic=True)[:3] == [2, 4, 7]


def test_memory_of_a_slice_by_hand() -> None:
    """Columns 3, 40, 4 and 7, 50, 30, 1; the widest once more; three copies of 2 x 4 numbers of rows."""
    columns = 3 + 40 + 4 + 7 + 50 + 30 + 1 + 50
    assert measure_model(SMALL, FACTS, 10).step_bytes == 4 * 10 * (columns + LOOK_UPS)


def test_of_a_model_that_does_not_know_its_size_what_autograd_keeps_is_counted() -> None:
    """Its 11 inputs and 7 outputs, the logits and labels; the inputs once more; look-ups."""
    weights = 11 * 7 + 7 + 7 + 1
    expected = ModelSize(weights, 4 * 1000 * (11 + 7 + 1 + 1 + 11 + LOOK_UPS))
    assert measure_model(named(Concatenation), FACTS, 1000) == expected


def test_what_cannot_run_without_values_is_measured_with_a_few_samples() -> None:
    sized, tried = (measure_model(named(kind), FACTS, 1000) for kind in (Concatenation, LooksAtValues))
    assert tried.weights == sized.weights
    assert sized.step_bytes <= tried.step_bytes <= 1.2 * sized.step_bytes


def test_a_model_may_say_its_size() -> None:
    assert measure_model(named(SaysItsSize), FACTS, 10).step_bytes == 10_000 + 4 * 10 * LOOK_UPS


class SaysItWithNumPy(SaysItsSize):
    said = np.int64(1000)


def test_a_size_may_be_numpys() -> None:
    assert measure_model(named(SaysItWithNumPy), FACTS, 10) == measure_model(named(SaysItsSize), FACTS, 10)


@pytest.mark.parametrize(("kind", "said"), [(Negative, "-40"), (NoNumber, "nan"), (NoBytes, "None")])
def test_a_size_that_is_none_is_refused(kind: type, said: str) -> None:
    """It would let a run start that this host has no memory for."""
    with pytest.raises(ConfigError, match=f"step_bytes returns {said} for 8 samples: it must"):
        measure_model(named(kind), FACTS, 10)


def test_logits_that_are_none_are_named_before_anything_is_tried() -> None:
    with pytest.raises(ConfigError, match=r"NoLogits': forward must return float32 logits of shape \[8\] .* NoneType"):
        measure_model(named(NoLogits), FACTS, 10)
