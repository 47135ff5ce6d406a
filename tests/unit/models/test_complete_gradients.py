"""Gradients of embeddings are taken in the backward pass: complete, before layers that come behind them, and once."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.embeddings import Embeddings, random_embeddings
from bagpipe_hpc.models.facts import FeatureFacts, ModelFacts
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.models.sums.gradient_groups import trainable
from bagpipe_hpc.step.dense.passes import backward
from bagpipe_hpc.step.ready_batch import NO_INPUTS
from bagpipe_hpc.step.slice_step import SliceStep

SAMPLES = 5
FACTS = ModelFacts.one_hot(3, 4, 8, seed=1)
WIDTHS = (FeatureFacts("C1", 4), FeatureFacts("C2", 6), FeatureFacts("visits", 4, "sequence", 3))


def rows_of(features: tuple[FeatureFacts, ...]) -> Embeddings:
    facts = ModelFacts(0, features, 1)
    generator = torch.Generator().manual_seed(1)
    return random_embeddings(facts, SAMPLES, generator, torch.device("cpu")).requiring_gradients()


class Reader(nn.Module):
    """Reads some tensors of its embeddings, the first ones first."""

    def __init__(self, *read: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.read = read

    def forward(self, _: Tensor, embeddings: Embeddings) -> Tensor:
        tensors = embeddings.tensors()
        return sum(((self.weight * tensors[place]).square().sum() for place in self.read), self.weight.sum())


@pytest.mark.parametrize("name", ["dlrm", "dlrm_dcnv2"])
@pytest.mark.parametrize("samples", [SAMPLES, 0])
def test_layers_that_read_dense_features_come_behind_the_embeddings(name: str, samples: int) -> None:
    """Of an empty slice, too; the gradients are those of the whole pass."""
    model = build_model(ModelConfig(name=name, embedding_dim=8), FACTS)
    generator = torch.Generator().manual_seed(1)
    embeddings = random_embeddings(FACTS, samples, generator, torch.device("cpu")).requiring_gradients()
    taken: dict[int, Tensor] = {}
    is_behind: dict[str, bool] = {}
    for weight_name, weight in model.named_parameters():
        weight.register_post_accumulate_grad_hook(lambda _, own=weight_name: is_behind.update({own: bool(taken)}))
    logits = model(torch.rand(samples, 3), embeddings)
    loss = click_loss(logits, torch.ones(samples), 10)
    gradients = backward(trainable(model), embeddings, loss, lambda width, found: taken.update({width: found.clone()}))
    assert taken.keys() == gradients.keys() == {8}
    assert torch.equal(taken[8], gradients[8])
    assert is_behind == {own: own.startswith("bottom") for own, _ in model.named_parameters()}


def test_a_width_is_complete_with_all_its_embeddings() -> None:
    embeddings = rows_of(WIDTHS)
    width_4, of_visits, width_6 = embeddings.tensors()
    there: list[tuple[int, list[bool]]] = []

    def take(width: int, _: Tensor) -> None:
        there.append((width, [tensor.grad is not None for tensor in (width_4, of_visits, width_6)]))

    model = Reader(1, 2, 0)  # the backward pass goes the other way
    backward(trainable(model), embeddings, model(torch.empty(0), embeddings), take)
    assert there == [(6, [True, False, True]), (4, [True, True, True])]


def test_a_width_with_an_embedding_that_is_not_read_is_left_to_the_end() -> None:
    embeddings = rows_of(WIDTHS)
    model, taken = Reader(0, 2), []
    loss = model(torch.empty(0), embeddings)
    gradients = backward(trainable(model), embeddings, loss, lambda width, _: taken.append(width))
    assert taken == [6]
    assert gradients.keys() == {4, 6}


def penalty(_: nn.Parameter, leaf: Tensor) -> Tensor:
    (slope,) = torch.autograd.grad(leaf.pow(3).sum(), leaf, create_graph=True)
    return slope.square().sum()


def with_a_hook(weight: nn.Parameter, leaf: Tensor) -> Tensor:
    leaf.register_hook(lambda gradient: 0.5 * gradient)
    return (weight * leaf).sum()


def with_a_pass_before(weight: nn.Parameter, leaf: Tensor) -> Tensor:
    (weight.detach() * leaf).sum().backward()
    return (weight * leaf).square().sum()


USES = {
    "read twice": lambda weight, leaf: (weight * leaf).sum() + (weight * leaf.square()).sum(),
    "partly detached": lambda weight, leaf: (weight * leaf[:, 0]).sum() * leaf.detach().sum(),
    "computed once more": lambda weight, leaf: checkpoint(
        lambda w, x: (w * x).exp().sum(), weight, leaf, use_reentrant=False
    ),
    "computed in a pass of its own": lambda weight, leaf: checkpoint(
        lambda w, x: (w * x).exp().sum(), weight, leaf, use_reentrant=True
    ),
    "seen by one pass of its own alone": lambda weight, leaf: checkpoint(
        lambda w: (w * leaf).exp().sum(), weight, use_reentrant=True
    ),
    "gradients in the loss": penalty,
    "a hook changes them": with_a_hook,
    "a pass before": with_a_pass_before,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_is_taken_is_what_the_pass_ends_with(use: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
    """However a model uses its embeddings."""
    embeddings = rows_of(WIDTHS[:1])
    (leaf,) = embeddings.tensors()
    taken: dict[int, Tensor] = {}
    loss = use(nn.Parameter(torch.ones(1)), leaf)
    gradients = backward([], embeddings, loss, lambda width, found: taken.update({width: found.clone()}))
    assert torch.equal(taken[4], gradients[4])
    assert gradients[4].any()


def test_gradients_in_several_passes_are_refused() -> None:
    """A pass within the pass gives a leaf its part before the rest has come."""
    embeddings = rows_of(WIDTHS[:1])
    (leaf,) = embeddings.tensors()
    weight = nn.Parameter(torch.ones(1))
    loss = sum(checkpoint(lambda own: (own * leaf).sum(), weight, use_reentrant=True) for _ in range(2))
    with pytest.raises(ConfigError, match=r"several backward passes, one within the other.*use_reentrant=False"):
        backward([], embeddings, loss, lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("factor", "count"), [(1.0, 1), (float("nan"), 0), (float("inf"), 0)])
def test_a_loss_that_is_not_finite_gives_nothing_away(factor: float, count: int) -> None:
    taken = []
    inputs = NO_INPUTS._replace(dense=torch.empty(SAMPLES, 0), labels=torch.ones(SAMPLES))
    model = Reader(0)
    rows = rows_of(WIDTHS[:1])
    step = SliceStep(trainable(model), inputs, rows, 10, step=7, take=lambda width, _: taken.append(width))
    step.backward(factor * model(step.dense, step.embeddings))
    assert len(taken) == count
    assert step.result()[1].keys() == {4}
