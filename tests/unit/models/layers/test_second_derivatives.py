"""Gradients of gradients, as of a penalty in a training loop of one's own, are those of torch's layers."""

import pytest
import torch
from torch import Tensor

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import random_embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.layers.interaction import choose_interaction, torch_interaction
from bagpipe_hpc.models.layers.linear import LinearLayer, blas_linear, linear_kernels, onednn_linear, torch_linear
from bagpipe_hpc.models.loss import click_loss

CPU = torch.device("cpu")
FACTS = ModelFacts.one_hot(4, 3, 16, 1)
SAMPLES = 32
OWN = choose_interaction("auto", CPU)
LAYERS = {"blas": blas_linear(linear_kernels("auto")), "onednn": onednn_linear(linear_kernels("auto"))}


def penalised(name: str, kernels: ModelKernels) -> list[Tensor]:
    """The penalty on the gradients of rows, and the gradients of all weights and rows of it and the loss."""
    model = build_model(ModelConfig(name=name), FACTS, kernels)
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(SAMPLES, 4, generator=generator)
    embeddings = random_embeddings(FACTS, SAMPLES, generator, CPU).requiring_gradients()
    logits = model(dense, embeddings)
    rows = embeddings.tensors()
    penalty = sum(found.pow(2).sum() for found in torch.autograd.grad(logits.sum(), rows, create_graph=True))
    assert isinstance(penalty, Tensor)
    (click_loss(logits, torch.zeros(SAMPLES), SAMPLES) + penalty).backward()
    gradients = [leaf.grad for leaf in (*model.parameters(), *rows)]
    return [penalty.detach(), *(torch.zeros(()) if gradient is None else gradient for gradient in gradients)]


@pytest.mark.parametrize("name", ["dlrm", "dcn_v2", "deepfm"])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_penalty_on_gradients_trains_the_weights(layer: LinearLayer, name: str) -> None:
    expected = penalised(name, ModelKernels(torch_linear, torch_interaction))
    found = penalised(name, ModelKernels(layer, OWN))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("needed", ["bottom", "embeddings"])
def test_either_side_of_the_interaction_may_need_no_gradient(needed: str) -> None:
    generator = torch.Generator().manual_seed(0)
    sides = {"bottom": torch.rand(5, 4, generator=generator), "embeddings": torch.rand(5, 3, 4, generator=generator)}
    leaf = sides[needed].requires_grad_()

    def second(interaction: object) -> Tensor:
        assert callable(interaction)
        (first,) = torch.autograd.grad(interaction(**sides).pow(2).sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), leaf)[0]

    torch.testing.assert_close(second(OWN), second(torch_interaction))
