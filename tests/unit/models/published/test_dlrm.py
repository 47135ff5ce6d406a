"""The dense half of DLRM against its formula, written with einsum in float64."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.layers.interaction import torch_interaction
from bagpipe_hpc.models.layers.linear import LinearLayer, bfloat16_linear, torch_linear
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.models.published.dlrm import DLRM

DENSE, SPARSE, WIDTH = 13, 5, 8
FACTS = ModelFacts.one_hot(DENSE, SPARSE, WIDTH, seed=3)
WIDTHS = DLRMSettings(bottom_mlp=(16, 12), top_mlp=(20,))


def model(seed: int = 3, widths: DLRMSettings = WIDTHS) -> DLRM:
    return DLRM(ModelFacts.one_hot(DENSE, SPARSE, WIDTH, seed), widths)


def inputs(samples: int) -> tuple[torch.Tensor, Embeddings]:
    generator = torch.Generator().manual_seed(1)
    dense = torch.randn(samples, DENSE, generator=generator)
    return dense, Embeddings.of_stacked(FACTS.features, torch.randn(samples, SPARSE, WIDTH, generator=generator))


def plain_mlp(layers: nn.Sequential, values: np.ndarray, *, last_is_linear: bool) -> np.ndarray:
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    for number, layer in enumerate(linear):
        weight, bias = (part.detach().numpy().astype(np.float64) for part in (layer.weight, layer.bias))
        values = np.einsum("bi,oi->bo", values, weight) + bias
        if not (last_is_linear and number == len(linear) - 1):
            values = np.maximum(values, 0.0)
    return values


def plain_logits(dlrm: DLRM, dense: torch.Tensor, embeddings: torch.Tensor) -> np.ndarray:
    """Bottom MLP; every pair of different vectors, each once; top MLP over the bottom's output and the pairs."""
    if dense.shape[1]:
        bottom = plain_mlp(dlrm.bottom, dense.numpy().astype(np.float64), last_is_linear=False)
    else:
        bottom = np.tile(dlrm.constant.detach().numpy().astype(np.float64), (len(dense), 1))
    vectors = [bottom, *embeddings.numpy().astype(np.float64).transpose(1, 0, 2)]
    pairs = [np.einsum("bd,bd->b", vectors[i], vectors[j]) for i in range(len(vectors)) for j in range(i)]
    return plain_mlp(dlrm.top, np.concatenate((bottom, np.stack(pairs, 1)), 1), last_is_linear=True)


@pytest.mark.parametrize("widths", [WIDTHS, DLRMSettings(bottom_mlp=(), top_mlp=())])
def test_logits_are_those_of_the_formula(widths: DLRMSettings) -> None:
    dlrm = model(widths=widths)
    dense, embeddings = inputs(9)
    logits = dlrm(dense, embeddings).detach()
    assert logits.dtype == torch.float32
    expected = plain_logits(dlrm, dense, embeddings.stacked())[:, 0]
    np.testing.assert_allclose(logits.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_without_dense_features_a_learned_vector_takes_their_place() -> None:
    facts = ModelFacts(0, FACTS.features, seed=3, labels=2)
    dlrm = DLRM(facts, WIDTHS)
    assert {name.partition(".")[0] for name, _ in dlrm.named_parameters()} == {"constant", "top"}
    dense, embeddings = inputs(9)
    logits = dlrm(dense[:, :0], embeddings)
    assert logits.shape == (9, 2)
    expected = plain_logits(dlrm, dense[:, :0], embeddings.stacked())
    np.testing.assert_allclose(logits.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    logits[:, 1].sum().backward()
    assert dlrm.constant.grad is not None
    assert dlrm.constant.grad.any()


def test_without_samples_gradients_are_zero() -> None:
    """A trainer whose slice is empty still takes part in every reduction."""
    dlrm = model()
    dense, embeddings = inputs(0)
    rows = embeddings.stacked().requires_grad_()
    loss = click_loss(dlrm(dense, embeddings), torch.empty(0), batch_samples=4)
    loss.backward()
    assert loss.item() == 0.0
    assert rows.grad is not None
    assert rows.grad.shape == (0, SPARSE, WIDTH)
    for parameter in dlrm.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_the_seed_alone_decides_the_first_weights() -> None:
    torch.manual_seed(5)
    first = model().state_dict()
    torch.manual_seed(6)
    again, other = model().state_dict(), model(seed=4).state_dict()
    for name, weights in first.items():
        assert torch.equal(weights, again[name]), name
        assert not torch.equal(weights, other[name]), name


def test_first_weights_are_scaled_by_fan_in_and_fan_out() -> None:
    dlrm = model(widths=DLRMSettings(bottom_mlp=(400, 200)))
    layer = dlrm.bottom[2]
    assert isinstance(layer, nn.Linear)
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 600), rel=0.02)
    assert layer.bias.std().item() == pytest.approx(math.sqrt(1 / 200), rel=0.2)


def test_the_weights_are_all_that_is_saved() -> None:
    dlrm = model()
    assert set(dlrm.state_dict()) == {name for name, _ in dlrm.named_parameters()}


def test_shares_of_the_loss_add_up_to_the_mean() -> None:
    logits, labels = torch.randn(7, dtype=torch.float64), torch.tensor([0.0, 1, 1, 0, 1, 0, 0], dtype=torch.float64)
    shares = [click_loss(logits[part], labels[part], 7) for part in (slice(0, 3), slice(3, 3), slice(3, 7))]
    clicked = torch.sigmoid(logits)
    mean = -(labels * clicked.log() + (1 - labels) * (1 - clicked).log()).mean()
    assert sum(shares).item() == pytest.approx(mean.item(), rel=1e-12)


def losses(linear: LinearLayer) -> list[float]:
    """A model that learns which of 40 samples are clicks, 60 steps of SGD."""
    dlrm = model(widths=DLRMSettings(bottom_mlp=(32,), top_mlp=(64,)))
    dlrm.use_kernels(ModelKernels(linear, torch_interaction))
    dense, embeddings = inputs(40)
    labels = (torch.arange(40) % 3 == 0).float()
    optimizer = torch.optim.SGD(dlrm.parameters(), lr=0.3)
    found = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = click_loss(dlrm(dense, embeddings), labels, 40)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.slow
def test_bfloat16_layers_train_to_nearly_the_same_loss() -> None:
    exact, rounded = losses(torch_linear), losses(bfloat16_linear)
    assert exact[-1] < 0.5 * exact[0]
    assert rounded[-1] == pytest.approx(exact[-1], rel=0.1)
    assert rounded != exact
