"""A training loop gives each slice one loss, and takes all slices; what it leaves out is said."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.step.dense.passes import forward_backward
from bagpipe_hpc.step.ready_batch import NO_INPUTS
from bagpipe_hpc.step.slice_step import Session, SliceStep, click_training

FACTS = ModelFacts.one_hot(3, 2, 4, seed=1)


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        logits: Tensor = self.layer(dense).squeeze(1) + embeddings.stacked().sum((1, 2))
        return logits


def slice_step(model: nn.Module, samples: int = 5) -> SliceStep:
    inputs = NO_INPUTS._replace(dense=torch.rand(samples, 3), labels=torch.ones(samples))
    embeddings = Embeddings.of_stacked(FACTS.features, torch.rand(samples, 2, 4)).requiring_gradients()
    return SliceStep([*model.parameters()], inputs, embeddings, 10, step=7)


def test_the_default_loop_trains_by_cross_entropy() -> None:
    model, other = Sum(), Sum()
    other.load_state_dict(model.state_dict())
    step = slice_step(model)
    embeddings = step.embeddings.detached()
    session = Session(model, FACTS, iter([step]), 0, 1)
    click_training(session)
    session.require_end()
    loss, gradients = step.result()
    expected, of_embeddings = forward_backward(other, step.dense, step.labels, embeddings, 10)
    assert torch.equal(loss, expected)
    assert gradients.keys() == of_embeddings.keys() == {4}
    assert torch.equal(gradients[4], of_embeddings[4])
    assert model.layer.weight.grad is not None
    assert torch.equal(model.layer.weight.grad, other.layer.weight.grad)  # type: ignore[arg-type]


def test_a_loop_may_freeze_weights_for_a_while() -> None:
    """They get no gradient, not even zeros, which an optimizer would take for one."""
    model = Sum()
    model.layer.requires_grad_(False)
    step = slice_step(model)
    step.backward(model(step.dense, step.embeddings).sum())
    assert all(weight.grad is None for weight in model.parameters())
    model.layer.requires_grad_(True)
    step = slice_step(model)
    step.backward(step.embeddings.stacked().sum())
    assert all(torch.equal(weight.grad, torch.zeros_like(weight)) for weight in model.parameters())  # type: ignore[arg-type]


def test_a_slice_without_a_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"step 7: the loop asks for the next slice without batch\.backward\(loss\)"):
        slice_step(Sum()).result()


def test_gradients_that_are_removed_behind_backward_are_missed() -> None:
    """The dense weights would stay as they are, in silence."""
    model = Sum()
    step = slice_step(model)
    step.backward(model(step.dense, step.embeddings).sum())
    model.zero_grad()
    with pytest.raises(ConfigError, match=r"step 7: the weights have no gradients behind .*; leave zero_grad\(\) out"):
        step.result()


def test_a_second_loss_is_refused() -> None:
    model = Sum()
    step = slice_step(model)
    step.backward(click_loss(model(step.dense, step.embeddings), step.labels, 10))
    with pytest.raises(ConfigError, match=r"step 7: backward was called twice; add up the losses"):
        step.backward(click_loss(model(step.dense, step.embeddings), step.labels, 10))


def test_a_loss_must_be_a_scalar_that_depends_on_something() -> None:
    model = Sum()
    step = slice_step(model)
    with pytest.raises(ConfigError, match=r"backward got 0\.5; give it a scalar tensor"):
        step.backward(0.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"backward got a loss of shape \[5\]; give it a scalar"):
        step.backward(model(step.dense, step.embeddings))
    with pytest.raises(ConfigError, match=r"backward got a loss that depends on no weight"):
        step.backward(torch.tensor(1.0))


def test_a_loop_that_ends_early_is_refused() -> None:
    model = Sum()

    def slices() -> Iterator[SliceStep]:
        for _ in range(3):
            yield slice_step(model)

    session = Session(model, FACTS, slices(), 0, 1)
    for _ in zip(range(2), session, strict=False):
        pass
    with pytest.raises(ConfigError, match=r"ended before the run's last batch; train\.max_steps shortens a run"):
        session.require_end()


def test_slices_come_once() -> None:
    """A loop that was left has ended all of them: another one would find none, and the other trainers would wait."""
    session = Session(Sum(), FACTS, iter([slice_step(Sum()), slice_step(Sum())]), 0, 1)
    next(iter(session))
    with pytest.raises(ConfigError, match=r"begins to go through its session a second time, .* `batches = iter\(sess"):
        next(iter(session))


def test_behind_the_last_slice_come_no_more() -> None:
    """As where a loop counts epochs itself."""
    session = Session(Sum(), FACTS, iter([slice_step(Sum())]), 0, 1)
    assert [len([*session]) for _ in range(2)] == [1, 0]
    session.require_end()
