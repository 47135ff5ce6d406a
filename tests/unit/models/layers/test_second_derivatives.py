"""Gradients of gradients, as of a penalty in a training loop of one's own, are those of torch's layers."""

import pytest
import torch
from torch import Tensor

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import random_embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.layers.interaction import Interaction, choose_interaction, torch_interaction
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
    return [penalty.detach(), *list_of_gradients([*model.parameters(), *rows])]


def list_of_gradients(leaves: list[Tensor]) -> list[Tensor]:
    """Zeros where there is none: torch has zeros for some weights on which nothing depends."""
    return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]


@pytest.mark.parametrize("name", ["dlrm", "dcn_v2", "deepfm"])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_penalty_on_gradients_trains_the_weights(layer: LinearLayer, name: str) -> None:
    expected = penalised(name, ModelKernels(torch_linear, torch_interaction))
    found = penalised(name, ModelKernels(layer, OWN))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_layers_without_dense_features_are_penalised_alike() -> None:
    """The constant in the place of these is the same memory for all samples."""
    facts = ModelFacts.one_hot(0, 3, 16, 1)

    def gradients(kernels: ModelKernels) -> list[Tensor]:
        model = build_model(ModelConfig(name="dlrm"), facts, kernels)
        generator = torch.Generator().manual_seed(0)
        embeddings = random_embeddings(facts, SAMPLES, generator, CPU).requiring_gradients()
        logits = model(torch.empty(SAMPLES, 0), embeddings)
        found = torch.autograd.grad(logits.sum(), embeddings.tensors(), create_graph=True)
        torch.stack([gradient.pow(2).sum() for gradient in found]).sum().backward()
        return list_of_gradients(list(model.parameters()))

    expected = gradients(ModelKernels(torch_linear, torch_interaction))
    found = gradients(ModelKernels(LAYERS["onednn"], OWN))
    assert sum(bool(gradient.any()) for gradient in found) > 1
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_one_side_of_the_interaction_may_be_made_of_the_other() -> None:
    """Its gradients go on to that once, behind the interaction."""
    whole = torch.rand(5, 3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def both(interaction: Interaction) -> list[Tensor]:
        outputs = interaction(whole.mean(1), whole[:, :2].transpose(1, 2).contiguous().transpose(1, 2))
        (first,) = torch.autograd.grad(outputs.pow(2).sum(), whole, create_graph=True)
        return [first.detach(), torch.autograd.grad(first.pow(2).sum(), whole)[0]]

    for one, other in zip(both(OWN), both(torch_interaction), strict=True):
        torch.testing.assert_close(one, other)


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
