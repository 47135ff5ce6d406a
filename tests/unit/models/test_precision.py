"""A model that computes its layers itself multiplies bfloat16 numbers where that is asked for, float32 outside."""

import inspect
import pickle
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.embeddings import Embeddings, random_embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.size import measure_model
from bagpipe_hpc.models.trial import try_model
from bagpipe_hpc.step.dense.passes import forward_backward, predict

FACTS = ModelFacts.one_hot(dense_features=3, sparse_features=2, embedding_dim=4, seed=1)
CPU = torch.device("cpu")


class Own(nn.Module):
    """Layers over all inputs; notes in which numbers the first one computes."""

    def __init__(self, facts: ModelFacts, settings: Any) -> None:  # noqa: ARG002
        super().__init__()
        self.first = nn.Linear(facts.dense_features + len(facts.features) * facts.embedding_dim, 32)
        self.second = nn.Linear(32, 1)
        self.seen: list[torch.dtype] = []

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        hidden = self.first(torch.cat((dense, embeddings.concatenated()), dim=1)).relu()
        self.seen.append(hidden.dtype)
        logits: Tensor = self.second(hidden)
        return logits.squeeze(1)


EXACT = ModelConfig(name=f"{__name__}:Own", embedding_dim=4)
ROUNDED = replace(EXACT, precision="bfloat16")


def passed(config: ModelConfig) -> tuple[Any, Tensor, Tensor, Tensor]:
    """A model after a pass over 50 samples, its logits, the loss and the gradients of the rows."""
    model: Any = build_model(config, FACTS)
    generator = torch.Generator().manual_seed(2)
    dense, embeddings = torch.rand(50, 3, generator=generator), random_embeddings(FACTS, 50, generator, CPU)
    labels = (torch.rand(50, generator=generator) < 0.5).float()
    logits = predict(model, dense, embeddings)
    loss, gradients = forward_backward(model, dense, labels, embeddings, 50)
    return model, logits, loss, gradients[4]


def test_products_are_bfloat16_and_all_that_leaves_the_model_float32() -> None:
    model, logits, loss, gradients = passed(ROUNDED)
    assert set(model.seen) == {torch.bfloat16}
    assert {logits.dtype, loss.dtype, gradients.dtype} == {torch.float32}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert {weight.grad.dtype for weight in model.parameters()} == {torch.float32}
    assert not torch.is_autocast_enabled("cpu")


def test_it_is_float32_with_fewer_digits() -> None:
    (exact, *expected), (rounded, *found) = passed(EXACT), passed(ROUNDED)
    assert set(exact.seen) == {torch.float32}
    assert list(exact.state_dict()) == list(rounded.state_dict())
    expected += [weight.grad for weight in exact.parameters()]
    found += [weight.grad for weight in rounded.parameters()]
    for one, other in zip(found, expected, strict=True):
        assert not torch.equal(one, other)
        assert float((one - other).norm() / other.norm()) < 0.1  # a ReLU may open or close


def test_a_copy_computes_with_its_own_weights() -> None:
    """As that of `torch.optim.swa_utils.AveragedModel`; and arguments may be named."""
    model: Any = build_model(ROUNDED, FACTS)
    copy = deepcopy(model)
    with torch.no_grad():
        for weight in copy.parameters():
            weight.zero_()
    generator = torch.Generator().manual_seed(2)
    dense, embeddings = torch.rand(50, 3, generator=generator), random_embeddings(FACTS, 50, generator, CPU)
    assert not copy(dense, embeddings).any()
    assert torch.equal(model(dense=dense, embeddings=embeddings), model(dense, embeddings))
    assert model(dense, embeddings).all()
    assert list(inspect.signature(model.forward).parameters) == ["dense", "embeddings"]
    with pytest.raises(AttributeError, match="with_autocast"):  # or it would go on without
        pickle.loads(pickle.dumps(model))  # noqa: S301 - its own


class Chooses(Own):
    """Takes one of its own functions for its forward pass."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.forward = self.of_zeros  # type: ignore[method-assign]

    def of_zeros(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        return super().forward(torch.zeros_like(dense), embeddings)


def test_a_forward_pass_that_the_model_has_chosen_is_kept() -> None:
    chosen = build_model(replace(ROUNDED, name=f"{__name__}:Chooses"), FACTS)
    usual = build_model(ROUNDED, FACTS)
    embeddings = random_embeddings(FACTS, 50, torch.Generator().manual_seed(2), CPU)
    assert torch.equal(chosen(torch.ones(50, 3), embeddings), usual(torch.zeros(50, 3), embeddings))


def test_the_same_pass_has_the_same_bits() -> None:
    for one, other in zip(passed(ROUNDED)[1:], passed(ROUNDED)[1:], strict=True):
        assert torch.equal(one, other)


def test_it_is_tried_and_measured_as_it_will_compute() -> None:
    try_model(ROUNDED, FACTS, CPU)
    assert measure_model(ROUNDED, FACTS, 1000) == measure_model(EXACT, FACTS, 1000)
