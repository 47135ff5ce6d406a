"""A model that does not keep to its contract is refused by name, with what is wrong, before a run begins."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models import dropout
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.trial import require_same_logits, try_model

FACTS = ModelFacts.one_hot(dense_features=3, sparse_features=2, embedding_dim=4, seed=1)
CPU = torch.device("cpu")


class Plain(nn.Module):
    """A layer over the dense features, and a weight for each number of a row."""

    @dataclass(frozen=True)
    class Settings:
        """Of `Plain`."""

        wide: int = 1
        """Outputs of the layer; their mean counts."""

    def __init__(self, facts: ModelFacts, settings: Settings) -> None:
        super().__init__()
        self.layer = nn.Linear(facts.dense_features, settings.wide)
        self.scale = nn.Parameter(torch.ones(facts.embedding_dim))

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return self.logits(dense, embeddings.stacked())

    def logits(self, dense: Tensor, rows: Tensor) -> Tensor:
        return self.layer(dense).mean(1) + (rows * self.scale).sum((1, 2))


class Unmade(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        raise KeyError("no such thing")


class NoModule:
    def __init__(self, facts: ModelFacts, settings: Any) -> None: ...


class NoWeights(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.requires_grad_(requires_grad=False)


class Doubles(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.double()


class Unseeded(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.scale.data *= random.random()


class UnseededBuffer(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.register_buffer("shift", torch.tensor(random.random()))


class UnseededConstant(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.shift = random.random()

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return super().forward(dense, embeddings) + self.shift


class SeededBuffer(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.register_buffer("shift", torch.rand(()))
        self.register_buffer("scratch", torch.tensor(random.random()), persistent=False)


class KernelsFail(Plain):
    def use_kernels(self, kernels: Any) -> None:  # noqa: ARG002
        raise KeyError("no such kernel")


class GroupsFail(Plain):
    def gradient_groups(self) -> Any:
        return None


class GroupsOfNames(Plain):
    def gradient_groups(self) -> Any:
        return [["scale"], ["layer.weight", "layer.bias"]]


class Fails(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return self.layer(embeddings.stacked()) + dense


class Columns(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return super().forward(dense, embeddings).unsqueeze(1)


class Pair(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return super().forward(dense, embeddings), dense


class Detached(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return super().forward(dense, embeddings).detach()


class Dropout(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return self.logits(dense, nn.functional.dropout(embeddings.stacked()))


class FunctionalDropout(Plain):
    """Drops so little that two passes over a few samples are mostly alike."""

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        return nn.functional.dropout(super().forward(dense, embeddings), 1e-6, self.training)


class Constant(Plain):
    shift = 0.0

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        logits: Tensor = super().forward(dense, embeddings)
        return logits + self.shift


class Lazy(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.layer = nn.LazyLinear(1)


class AddsLayer(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Linear(1, 1)
        return super().forward(dense, embeddings) + self.late(dense[:, :1]).squeeze(1)


class Chances(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        return super().forward(dense, embeddings).sigmoid().clamp(1e-7, 1 - 1e-7)


class ChanceOfTwo(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        logits = super().forward(dense, embeddings)
        return torch.stack((torch.zeros_like(logits), logits), dim=1).softmax(1)[:, 1]


class BoundedLogits(Plain):
    """The last function but one is a sigmoid: these are logits."""

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        return 8 * super().forward(dense, embeddings).sigmoid() - 4


class HalvesDense(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        return super().forward(dense.mul_(0.5), embeddings)


class RareDropout(Plain):
    """Whose masks of a few samples are mostly ones."""

    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.rarely = nn.Dropout(1e-6)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return self.logits(dense, self.rarely(embeddings.stacked()))


class SeededDropout(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.dropout = dropout.Dropout(0.5)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return self.logits(dense, self.dropout(embeddings.stacked()))


class DropsFeatures(SeededDropout):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return self.logits(dense, self.dropout(embeddings.stacked().transpose(0, 1)).transpose(0, 1))


class FailsInEvaluations(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return super().forward(dense, embeddings) if self.training else None


class BatchNorm(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.norm = nn.BatchNorm1d(facts.dense_features)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return super().forward(self.norm(dense), embeddings)


class Centred(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        rows = embeddings.stacked()
        return self.logits(dense, rows - rows.mean(0))


class Recurrent(Plain):
    """Over the samples: `batch_first` was forgotten, so that the first one alone depends on no other."""

    def __init__(self, facts: ModelFacts, settings: Plain.Settings) -> None:
        super().__init__(facts, settings)
        self.recurrent = nn.GRU(facts.embedding_dim, facts.embedding_dim)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return self.logits(dense, self.recurrent(embeddings.stacked())[0])


class Deviation(Plain):
    """Of one sample it is zero, and its share of it no number."""

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        centred = dense - dense.mean(0)
        return self.logits(centred / (centred**2).sum(0).sqrt(), embeddings.stacked())


class Reshapes(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        rows = embeddings.stacked()
        return self.logits(dense, rows) + rows.reshape(len(rows), -1).sum(1)


class Logarithm(Plain):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return super().forward(dense - 2.0, embeddings).log() + dense.sub(2.0).log().sum(1)


class SparseGradient(Plain):
    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        super().__init__(facts, settings)
        self.table = nn.Embedding(5, 1, sparse=True)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Any:
        return super().forward(dense, embeddings) + self.table(dense.long()).sum((1, 2))


def named(kind: type) -> ModelConfig:
    return ModelConfig(name=f"{__name__}:{kind.__name__}", embedding_dim=4)


@pytest.mark.parametrize(
    "config",
    [ModelConfig(), named(Plain), named(SeededDropout), named(SeededBuffer), named(BoundedLogits)],
    ids=["dlrm", "a user's own", "dropout", "buffer", "bounded logits"],
)
def test_a_model_passes_and_leaves_torchs_generator_alone(config: ModelConfig) -> None:
    state = torch.get_rng_state()
    try_model(config, FACTS, CPU)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Unmade, r"cannot be made: KeyError: 'no such thing' \(test_trial\.py, line \d+\)"),
        (NoModule, r"must be an nn\.Module; it is NoModule"),
        (NoWeights, "has no parameter to train; give it one"),
        (Doubles, r"its parameter scale is torch\.float64; parameters must be contiguous float32"),
        (Unseeded, "its parameter scale differs each time it is made"),
        (UnseededBuffer, "its buffer shift differs each time it is made, so trainers would differ; draw what it"),
        (UnseededConstant, "its logits differ each time it is made, so trainers would differ; draw what it begins"),
        (GroupsFail, r"gradient_groups fails: TypeError: 'NoneType' object is not iterable"),
        (GroupsOfNames, r"gradient_groups fails: AttributeError: 'str' object has no attribute 'requires_grad'"),
        (Fails, r"forward fails on dense \[5, 3\] and embeddings \[5, 2, 4\]: RuntimeError: .* \(test_trial\.py, line"),
        (Columns, r"must return float32 logits of shape \[5\] for 5 samples, .*; it returns torch\.float32 \[5, 1\]"),
        (Pair, r"shape \[5\] for 5 samples, on cpu; it returns tuple"),
        (Detached, "its logits do not depend on any weight"),
        (Logarithm, "its logits are not finite"),
        (Dropout, "a forward pass draws from torch's generator; .* bagpipe_hpc.models.dropout.Dropout"),
        (FunctionalDropout, "a forward pass draws from torch's generator; .* bagpipe_hpc.models.dropout.Dropout"),
        (HalvesDense, "differ between two passes over the same samples, and forward changes dense: let it work on a"),
        (Lazy, r"its parameter layer\.weight has no size yet; give its layer the sizes"),
        (AddsLayer, r"a forward pass adds late\.weight, which no optimizer knows; make all layers in __init__"),
        (Chances, "it returns what a sigmoid gives, and that is no logit; leave the sigmoid out"),
        (ChanceOfTwo, "it returns what a softmax gives, and that is no logit; leave the softmax out"),
        (RareDropout, "its module rarely is torch's Dropout, whose masks differ between trainers; take bagpipe_hpc"),
        (DropsFeatures, r"Dropout: inputs of shape \[2, 5, 4\] in a pass of 5 samples: let the first dimension be"),
        (FailsInEvaluations, "it returns NoneType"),
        (BatchNorm, r"a forward pass changes its norm\.running_mean, .* \(nn\.LayerNorm does\)"),
        (Centred, "the logit of a sample depends on the other samples of its slice"),
        (Recurrent, "the logit of a sample depends on the other samples of its slice"),
        (Deviation, r"the logit of a sample depends on the other samples of its slice \(nan alone"),
        (
            Reshapes,
            r"embeddings \[0, 2, 4\] \(a trainer's slice of a small batch may be empty\): RuntimeError",
        ),
        (SparseGradient, r"the gradient of table\.weight is sparse"),
    ],
)
def test_what_is_wrong_is_named(kind: type, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^model\.name = '{__name__}:{kind.__name__}': .*{message}"):
        try_model(named(kind), FACTS, CPU)


def test_trainers_whose_models_differ_in_constants_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a file that each host has of its own. What differs by rounding passes."""
    config = named(Constant)
    here = try_model(config, FACTS, CPU)
    require_same_logits(config, [here, [logit * 1.0001 for logit in here], here])
    monkeypatch.setattr(Constant, "shift", 1.0)
    there = try_model(config, FACTS, CPU)
    with pytest.raises(ConfigError, match=r"Constant': its logits on trainer 2 differ from those on trainer 0 \("):
        require_same_logits(config, [here, here, there])


def test_first_weights_depend_on_the_seed_alone() -> None:
    """A module that uses torch's generator, as most do."""

    def weights(seed: int) -> Tensor:
        torch.rand(1)
        return build_model(named(Plain), ModelFacts.one_hot(3, 2, 4, seed)).get_parameter("layer.weight").detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_a_model_gets_settings_of_its_own() -> None:
    config = ModelConfig(name=f"{__name__}:Plain", settings=Plain.Settings(wide=7))
    assert build_model(config, FACTS).layer.weight.shape == (7, 3)


def test_kernels_that_a_model_does_not_take_are_its_fault() -> None:
    kernels: Any = "none"
    with pytest.raises(ConfigError, match=r"KernelsFail': use_kernels fails: KeyError: 'no such kernel' \(test_trial"):
        build_model(named(KernelsFail), FACTS, kernels)
