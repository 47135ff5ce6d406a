"""Each model against its publication's formula, written for one sample after the other in float64 NumPy."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from bagpipe_hpc.config.doors import MODELS
from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.contract import ModelKernels, TakesKernels
from bagpipe_hpc.models.embeddings import Embeddings, random_embeddings
from bagpipe_hpc.models.facts import FeatureFacts, ModelFacts
from bagpipe_hpc.models.layers.interaction import torch_interaction
from bagpipe_hpc.models.layers.linear import bfloat16_linear

Array = NDArray[np.float64]
Weights = Mapping[str, Array]

CPU = torch.device("cpu")
WIDTH = 6
POOLED = tuple(FeatureFacts(name, WIDTH) for name in ("user", "item", "genres"))
HISTORIES = (FeatureFacts("history", WIDTH, "sequence", 7), FeatureFacts("carts", WIDTH, "sequence", 3))
HOPS = (
    FeatureFacts("node", WIDTH),
    FeatureFacts("hop1", WIDTH, "sequence", 3, is_drawn=True),
    FeatureFacts("hop2", WIDTH, "sequence", 6, is_drawn=True),
)
SAMPLES = 9


def layers(weights: Weights, name: str) -> Iterator[tuple[Array, Array]]:
    """Weight and bias of each linear layer below a name; a layer without bias has one of zeros."""
    numbers = sorted(
        {int(key.split(".")[-2]) for key in weights if key.startswith(f"{name}.") and weights[key].ndim == 2}
    )
    for number in numbers:
        weight = weights[f"{name}.{number}.weight"]
        yield weight, weights.get(f"{name}.{number}.bias", np.zeros(len(weight)))


def mlp(weights: Weights, name: str, values: Array, *, last_is_linear: bool = True) -> Array:
    """With ReLU, or with PReLU where there are slopes."""
    found = list(layers(weights, name))
    for number, (weight, bias) in enumerate(found):
        values = weight @ values + bias
        if not (last_is_linear and number == len(found) - 1):
            slopes = weights.get(f"{name}.{2 * number + 1}.weight", np.zeros(len(values)))
            values = np.where(values > 0, values, slopes * values)
    return values


def first_order(weights: Weights, name: str, dense: Array, rows: Array, labels: int) -> Array:
    sums = weights[f"{name}.bias"].copy()
    for number, value in enumerate(dense):
        sums += weights[f"{name}.weight"][:, number] * value
    for row in rows:
        sums += row[:labels]
    return sums


def wide_deep(weights: Weights, dense: Array, rows: Array, labels: int, _: Any) -> Array:
    deep = mlp(weights, "deep", np.concatenate([dense, *(row[labels:] for row in rows)]))
    return first_order(weights, "wide", dense, rows, labels) + deep


def deepfm(weights: Weights, dense: Array, rows: Array, labels: int, _: Any) -> Array:
    fields = [row[labels:] for row in rows]
    deep = mlp(weights, "deep", np.concatenate([dense, *fields]))
    fields += [value * weights["dense_factors"][number] for number, value in enumerate(dense)]
    pairs = sum(fields[i] @ fields[j] for i in range(len(fields)) for j in range(i))
    return first_order(weights, "first_order", dense, rows, labels) + pairs + deep


def dcn(weights: Weights, dense: Array, rows: Array, *_: Any) -> Array:
    first = np.concatenate([dense, rows.reshape(-1)])
    crossed = first
    for weight, bias in zip(weights["cross.weights"], weights["cross.biases"], strict=True):
        crossed = first * np.dot(crossed, weight) + bias + crossed
    return mlp(weights, "last", np.concatenate([crossed, mlp(weights, "deep", first, last_is_linear=False)]))


def matrix_cross(weights: Weights, first: Array) -> Array:
    crossed = first
    for number in range(len({name.split(".")[2] for name in weights if name.startswith("cross.layers.")})):
        values = crossed
        for weight, bias in layers(weights, f"cross.layers.{number}"):
            values = weight @ values + bias
        crossed = first * values + crossed
    return crossed


def stacked(weights: Weights, dense: Array, rows: Array, *_: Any) -> Array:
    crossed = matrix_cross(weights, np.concatenate([dense, rows.reshape(-1)]))
    return mlp(weights, "last", mlp(weights, "deep", crossed, last_is_linear=False))


def parallel(weights: Weights, dense: Array, rows: Array, *_: Any) -> Array:
    first = np.concatenate([dense, rows.reshape(-1)])
    deep = mlp(weights, "deep", first, last_is_linear=False)
    return mlp(weights, "last", np.concatenate([matrix_cross(weights, first), deep]))


def dlrm_dcnv2(weights: Weights, dense: Array, rows: Array, *_: Any) -> Array:
    bottom = mlp(weights, "bottom", dense, last_is_linear=False)
    return mlp(weights, "top", matrix_cross(weights, np.concatenate([bottom, rows.reshape(-1)])))


def din(weights: Weights, dense: Array, rows: Array, _: int, histories: list[Array]) -> Array:
    vectors = []
    targets = [rows[1], rows[0]]  # item for history, user for carts
    for number, (target, history) in enumerate(zip(targets, histories, strict=True)):
        vector = np.zeros(WIDTH)
        for row in history:
            weight = mlp(weights, f"units.{number}.mlp", np.concatenate([target, row, target - row, target * row]))
            vector += weight[0] * row
        vectors.append(vector)
    return mlp(weights, "deep", np.concatenate([dense, rows.reshape(-1), *vectors]))


def graphsage(weights: Weights, dense: Array, rows: Array, _: int, hops: list[Array]) -> Array:
    def layer(number: int, own: Array, neighbours: Array) -> Array:
        inputs = np.concatenate([own, sum(neighbours) / len(neighbours)])
        return mlp(weights, f"layers.{number}", inputs, last_is_linear=False)

    node, (nearer, farther) = rows[0], hops
    each = len(farther) // len(nearer)
    once = [layer(0, row, farther[number * each :][:each]) for number, row in enumerate(nearer)]
    return mlp(weights, "last", np.concatenate([layer(1, layer(0, node, nearer), once), dense]))


CASES: dict[str, tuple[Callable[..., Array], str, dict[str, Any]]] = {
    "wide_deep": (wide_deep, "wide_deep", {"deep_mlp": (7, 5)}),
    "wide_deep without hidden layers": (wide_deep, "wide_deep", {"deep_mlp": ()}),
    "deepfm": (deepfm, "deepfm", {"deep_mlp": (7, 5)}),
    "dcn": (dcn, "dcn", {"cross_layers": 3, "deep_mlp": (7, 5)}),
    "dcn_v2": (stacked, "dcn_v2", {"cross_layers": 3, "deep_mlp": (7, 5)}),
    "dcn_v2, low rank": (stacked, "dcn_v2", {"cross_layers": 2, "cross_rank": 4, "deep_mlp": (7,)}),
    "dcn_v2, cross network alone": (stacked, "dcn_v2", {"deep_mlp": ()}),
    "dcn_v2, parallel": (parallel, "dcn_v2", {"structure": "parallel", "cross_rank": 3, "deep_mlp": (7, 5)}),
    "dlrm_dcnv2": (dlrm_dcnv2, "dlrm_dcnv2", {"bottom_mlp": (8,), "cross_rank": 5, "top_mlp": (9, 7)}),
    "din": (
        din,
        "din",
        {"attention": {"history": "item", "carts": "user"}, "attention_mlp": (8, 4), "deep_mlp": (7, 5)},
    ),
    "graphsage": (graphsage, "graphsage", {"hidden": 6}),
}


def made(case: str, dense_features: int, seed: int, labels: int = 1) -> tuple[nn.Module, ModelFacts]:
    _, name, settings = CASES[case]
    config = ModelConfig(name=name, embedding_dim=WIDTH, settings=MODELS.settings_class(name)(**settings))
    features = {"din": (HISTORIES[0], *POOLED, HISTORIES[1]), "graphsage": HOPS}.get(name, POOLED)
    facts = ModelFacts(dense_features, features, seed, labels)
    return build_model(config, facts), facts


def histories_of(embeddings: Embeddings, facts: ModelFacts) -> list[list[Array]]:
    """The rows of each sample's sequences."""
    found = []
    for feature in facts.sequences:
        sequence = embeddings.sequence(feature.name)
        ends = np.cumsum(sequence.lengths.numpy())
        found.append(np.split(sequence.rows.numpy().astype(np.float64), ends[:-1]))
    return [list(of_sample) for of_sample in zip(*found, strict=True)] if found else [[]] * SAMPLES


@pytest.mark.parametrize(("dense_features", "labels"), [(3, 1), (0, 1), (3, 2), (0, 3)])
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_formula(case: str, dense_features: int, labels: int) -> None:
    model, facts = made(case, dense_features, 4, labels)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for weight in model.parameters():  # zeros at first would prove nothing
            weight.normal_(0.1, 0.5, generator=generator)
    dense = torch.randn(SAMPLES, dense_features, generator=generator)
    embeddings = random_embeddings(facts, SAMPLES, generator, CPU)
    logits = model(dense, embeddings).detach()
    assert logits.shape == ((SAMPLES, labels) if labels > 1 else (SAMPLES,))
    weights = {key: value.numpy().astype(np.float64) for key, value in model.state_dict().items()}
    rows = embeddings.stacked().numpy().astype(np.float64)
    samples = zip(dense.numpy().astype(np.float64), rows, histories_of(embeddings, facts), strict=True)
    formula = CASES[case][0]
    expected = [formula(weights, of_dense, of_rows, labels, history) for of_dense, of_rows, history in samples]
    np.testing.assert_allclose(logits.numpy().reshape(SAMPLES, labels), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("case", CASES)
def test_the_seed_alone_decides_the_first_weights(case: str) -> None:
    def drawn(seed: int) -> dict[str, torch.Tensor]:
        torch.rand(1)
        return made(case, 3, seed)[0].state_dict()

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert all(torch.equal(first[key], again[key]) for key in first)
    constant = {key for key in first if first[key].unique().tolist() in ([0.0], [0.25])}  # biases, slopes of PReLU
    assert all(torch.equal(first[key], other[key]) == (key in constant) for key in first)
    matrices = {key for key in constant if first[key].dim() == 2}
    assert matrices <= {"wide.weight", "first_order.weight", "cross.biases"}


@pytest.mark.parametrize("case", CASES)
def test_without_samples_gradients_are_zero(case: str) -> None:
    """A trainer whose slice is empty still takes part in every reduction."""
    model, facts = made(case, 3, 4)
    embeddings = random_embeddings(facts, 0, torch.Generator(), CPU)
    model(torch.empty(0, 3), embeddings).sum().backward()
    assert not any(weight.grad is None or weight.grad.any() for weight in model.parameters())


@pytest.mark.parametrize("case", CASES)
def test_linear_layers_are_those_that_are_given(case: str) -> None:
    """All of them: bfloat16 products change the logits a little, and the number of calls is that of the layers."""
    model, facts = made(case, 3, 4)
    assert isinstance(model, TakesKernels)
    generator = torch.Generator().manual_seed(8)
    dense, embeddings = torch.randn(SAMPLES, 3, generator=generator), random_embeddings(facts, SAMPLES, generator, CPU)
    exact = model(dense, embeddings)
    calls = 0

    def counted(*layer: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return bfloat16_linear(*layer)

    model.use_kernels(ModelKernels(counted, torch_interaction))
    rounded = model(dense, embeddings)
    assert calls == sum(isinstance(module, nn.Linear) for module in model.modules())
    assert rounded.dtype == torch.float32
    assert 0 < (rounded - exact).abs().max() < 0.05 * exact.abs().max()
