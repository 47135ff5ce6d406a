"""The loss of clicks is what torch's own functions give in float64: any number of labels, with and without weights."""

import pytest
import torch
from torch import Tensor, nn

from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.models.sums.gradient_groups import trainable
from bagpipe_hpc.step.dense.passes import forward_backward
from bagpipe_hpc.step.ready_batch import NO_INPUTS
from bagpipe_hpc.step.slice_step import Session, SliceStep, click_training

SAMPLES, DENSE, WIDTH = 9, 3, 4
FACTS = ModelFacts.one_hot(DENSE, 2, WIDTH, seed=1)
shapes = pytest.mark.parametrize("labels", [None, 1, 3], ids=["one dimension", "one label", "three labels"])
weighing = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def drawn(labels: int | None, *, weighted: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits and labels `[SAMPLES]` or `[SAMPLES, labels]`, and weights, one of which is 0."""
    generator = torch.Generator().manual_seed(3)
    shape = (SAMPLES,) if labels is None else (SAMPLES, labels)
    logits = 3 * torch.randn(shape, generator=generator)
    clicks = (torch.rand(shape, generator=generator) < 0.4).float()
    weights = 2 * torch.rand(SAMPLES, generator=generator)
    weights[2] = 0
    return logits, clicks, weights if weighted else None


def expected_loss(logits: Tensor, clicks: Tensor, weights: Tensor | None, batch_samples: int) -> Tensor:
    """In float64, from probabilities, label by label; samples are weighted one by one."""
    by_label = logits.double().reshape(len(logits), -1), clicks.double().reshape(len(clicks), -1)
    total = torch.zeros((), dtype=torch.float64)
    for own_logits, own_clicks in zip(by_label[0].T, by_label[1].T, strict=True):
        losses = nn.functional.binary_cross_entropy(torch.sigmoid(own_logits), own_clicks, reduction="none")
        for number, loss in enumerate(losses):
            total = total + (loss if weights is None else loss * weights[number].double())
    return total / batch_samples


@shapes
@weighing
def test_it_is_torchs_cross_entropy(labels: int | None, weighted: bool) -> None:
    logits, clicks, weights = drawn(labels, weighted=weighted)
    logits.requires_grad_()
    loss = click_loss(logits, clicks, 20, weights)
    assert loss.dtype == torch.float32
    expected = expected_loss(logits, clicks, weights, 20)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    (wanted,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-8)


@shapes
@weighing
def test_slices_add_up_to_the_batch(labels: int | None, weighted: bool) -> None:
    """One of them is empty."""
    logits, clicks, weights = drawn(labels, weighted=weighted)
    whole = click_loss(logits, clicks, SAMPLES, weights)
    parts = [
        click_loss(logits[own], clicks[own], SAMPLES, None if weights is None else weights[own])
        for own in (slice(0, 4), slice(4, 4), slice(4, SAMPLES))
    ]
    assert parts[1] == 0
    torch.testing.assert_close(sum(parts), whole)


class Linear(nn.Module):
    """Logits of a slice: linear in dense features and embeddings."""

    def __init__(self, labels: int | None) -> None:
        super().__init__()
        self.squeezes = labels is None
        self.layer = nn.Linear(DENSE + 2 * WIDTH, labels or 1)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        logits: Tensor = self.layer(torch.cat((dense, embeddings.stacked().flatten(1)), dim=1))
        return logits.squeeze(1) if self.squeezes else logits


@shapes
@weighing
@pytest.mark.parametrize("by_loop", [False, True], ids=["reference's step", "default loop"])
def test_a_step_has_its_gradients(labels: int | None, weighted: bool, by_loop: bool) -> None:
    """Those of weights and of embeddings, whoever calls the loss."""
    _, clicks, weights = drawn(labels, weighted=weighted)
    model, dense, rows = Linear(labels), torch.rand(SAMPLES, DENSE), torch.rand(SAMPLES, 2, WIDTH)
    embeddings = Embeddings.of_stacked(FACTS.features, rows)
    if by_loop:
        inputs = NO_INPUTS._replace(dense=dense, labels=clicks, weights=weights)
        step = SliceStep(trainable(model), inputs, embeddings.requiring_gradients(), 20, step=1)
        click_training(Session(model, FACTS, iter([step]), 0, 1))
        loss, gradients = step.result()
    else:
        loss, gradients = forward_backward(model, dense, clicks, embeddings, 20, weights)

    exact = rows.detach().double().requires_grad_()
    layer = nn.Linear(DENSE + 2 * WIDTH, labels or 1).double()
    layer.load_state_dict(model.layer.state_dict())
    logits = layer(torch.cat((dense.double(), exact.flatten(1)), dim=1))
    expected = expected_loss(logits, clicks, weights, 20)
    expected.backward()
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=0)
    assert exact.grad is not None
    torch.testing.assert_close(gradients[WIDTH].double(), exact.grad.flatten(0, 1), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(model.layer.weight.grad.double(), layer.weight.grad, rtol=1e-4, atol=1e-7)
