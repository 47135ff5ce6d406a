"""The parts of an exported program."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.dense.interaction import ReferenceInteraction
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import FeatureFacts, ModelFacts
from bagpipe_hpc.storage.shards.entries import FeatureInfo
from bagpipe_hpc.tools.exporting import onnx
from bagpipe_hpc.tools.exporting.program import (
    ProgramInputs,
    ServedModel,
    largest_difference,
    ordered_interaction,
    require_used,
    write_down,
)

FEATURES = (FeatureInfo("user", "user"), FeatureInfo("seen", "item", ragged=True, weighted=True, longest=9))
FACTS = ModelFacts(2, (FeatureFacts("user", 5), FeatureFacts("seen", 5, "mean", 9)), seed=1)


class Sums(nn.Module):
    """The sum of all inputs of a sample, each times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.5))

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        return self.weight * torch.cat((dense, embeddings.concatenated()), 1).sum(1)


class Branching(Sums):
    """Looks at the values of its inputs."""

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        logits = super().forward(dense, embeddings)
        return logits if logits.sum() > 0 else -logits


def served(model: nn.Module) -> ServedModel:
    return ServedModel(model.eval(), FACTS, FEATURES)


@pytest.mark.parametrize(("samples", "features", "width"), [(1, 1, 1), (3, 4, 5), (0, 2, 3), (300, 26, 16)])
def test_the_interaction_has_the_bits_of_its_definition(samples: int, features: int, width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    bottom = torch.randn(samples, width, generator=generator)
    embeddings = torch.randn(samples, features, width, generator=generator)
    embeddings[:, 0] = -0.0
    expected = ReferenceInteraction().forward(bottom, embeddings)
    assert ordered_interaction(bottom, embeddings).view(torch.int32).equal(expected.view(torch.int32))


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_pooling_has_the_bits_of_the_row_operations(backend: str, pooling: str, weighted: bool) -> None:
    """Of long bags of numbers that differ in size, whose sums depend on their order."""
    feature = FeatureInfo("seen", "item", ragged=True, weighted=weighted, longest=99)
    facts = ModelFacts(0, (FeatureFacts("seen", 7, pooling, 99),), seed=1)
    lengths = [40, 0, 1, 99, 7] * 30
    inputs = ProgramInputs.drawn(facts, [feature], lengths)
    rows = inputs.rows["seen"] * torch.randn(len(inputs.rows["seen"]), 1).exp()
    found: list[Tensor] = []

    class Seen(nn.Module):
        def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
            found.append(embeddings["seen"])
            return dense.sum(1)

    ServedModel(Seen(), facts, [feature])(inputs.dense, {"seen": rows}, inputs.lengths, inputs.weights)
    counts = torch.tensor(lengths)
    scales = torch.repeat_interleave(1 / counts.clamp(min=1).float() if pooling == "mean" else torch.ones(150), counts)
    layout = PoolLayout(
        torch.cat((torch.zeros(1), counts.cumsum(0))).int(),
        torch.repeat_interleave(torch.arange(len(lengths)), counts).int(),
        (scales * inputs.weights["seen"]) if weighted else scales if pooling == "mean" else None,
    )
    order = torch.arange(len(rows), dtype=torch.int32)
    expected = row_operations(backend, torch.device("cpu"), 1).pool(rows, order, order, layout)
    assert found[0].view(torch.int32).equal(expected.view(torch.int32))


def test_a_program_takes_any_number_of_samples_and_ids() -> None:
    model = served(Sums())
    program = write_down(model, "sums", FACTS, FEATURES)
    assert largest_difference(program, model, FACTS, FEATURES) == 0.0


def test_another_program_is_noticed() -> None:
    other = Sums()
    other.weight.data.fill_(1.25)
    program = write_down(served(Sums()), "sums", FACTS, FEATURES)
    assert largest_difference(program, served(other), FACTS, FEATURES) > 0.1


def test_what_is_compared_grows_with_the_features_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch would look for the name of each input in each of its checks; those names that it makes are counted."""
    keystr, names = torch.utils._pytree.keystr, 0

    def counting(path: Any) -> str:
        nonlocal names
        names += 1
        return keystr(path)

    def made_for(count: int) -> int:
        features = [FeatureInfo(f"f{number}", f"f{number}") for number in range(count)]
        facts = ModelFacts(2, tuple(FeatureFacts(feature.name, 5) for feature in features), seed=1)
        model = ServedModel(Sums().eval(), facts, features)
        program = write_down(model, "sums", facts, features)
        before = names
        monkeypatch.setattr(torch.utils._pytree, "keystr", counting)
        largest_difference(program, model, facts, features)
        monkeypatch.undo()
        return names - before

    assert made_for(40) <= 3 * made_for(20)


def test_a_model_that_torch_export_cannot_follow_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as refused:
        write_down(served(Branching()), "branching", FACTS, FEATURES)
    message = str(refused.value)
    assert message.startswith("model.name = 'branching': torch.export cannot write its forward pass down: ")
    assert message.endswith("and let no branch depend on values (docs/serving.md)")
    assert "\n" not in message


@pytest.mark.skipif(not onnx.is_installed(), reason="onnxscript is not installed")
@pytest.mark.filterwarnings("ignore")
def test_onnx_is_written_for_ragged_features() -> None:
    import onnxruntime

    model = served(Sums())
    content = onnx.onnx_bytes(write_down(model, "sums", FACTS, FEATURES))
    session = onnxruntime.InferenceSession(content)
    for lengths in ([1], [0], [2, 0, 1], [3, 1, 0, 2] * 64):
        inputs = ProgramInputs.drawn(FACTS, FEATURES, lengths)
        flat, _ = torch.utils._pytree.tree_flatten(inputs.arguments)
        given = {own.name: tensor.numpy() for own, tensor in zip(session.get_inputs(), flat, strict=True)}
        (found,) = session.run(["logits"], given)
        torch.testing.assert_close(torch.from_numpy(found), model(*inputs.arguments).detach())


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (ModelConfig(precision="bfloat16"), "model.precision = 'bfloat16', whose products are torch's; leave it out"),
        (ModelConfig(name=f"{__name__}:Sums"), r"model.name = '.*:Sums' computes its layers in its own way"),
    ],
)
def test_a_library_that_would_multiply_nothing_is_refused(config: ModelConfig, why: str) -> None:
    """The folder's README said that it multiplies."""
    with pytest.raises(ConfigError, match=f"--linear onednn: has no effect, since {why}"):
        require_used("onednn", config)
    for linear in ("", "torch"):
        require_used(linear, config)
    require_used("onednn", ModelConfig())
