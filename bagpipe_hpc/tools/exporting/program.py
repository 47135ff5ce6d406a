"""The dense half as a program of `torch.export`, which runs wherever torch does: rows in, logits out.

It takes the rows as they stand in the tables and pools them itself, so that the code that looks rows up need know
nothing of sums, means and weights. Its arithmetic is the trainer's, operation by operation (docs/features.md): where a
trainer runs native code, the program has the plain torch code that defines the same bits.

Legend: `B` samples, `N` dense features, `D` width of a feature's rows, `V` ids of a feature over all samples,
`K` labels.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from bagpipe_hpc.config.doors import EntryError
from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import blaming_model, takes_kernels
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings, SequenceRows
from bagpipe_hpc.models.facts import FeatureFacts, ModelFacts
from bagpipe_hpc.models.layers.interaction import torch_interaction
from bagpipe_hpc.models.layers.linear import LinearLayer, bfloat16_linear, blas_forward, onednn_forward
from bagpipe_hpc.storage.shards.entries import FeatureInfo

LINEAR_LAYERS: Mapping[str, LinearLayer] = {"onednn": onednn_forward, "torch": blas_forward}
"""Linear layers, by their names in `Arithmetic.linear`."""
_TRACED = [2, 0, 1, 3]
"""Number of ids of each sample with which a model is traced."""
_CURE = "take sizes from tensor.shape, not by len() or int(), and let no branch depend on values (docs/serving.md)"


def require_used(linear: str, config: ModelConfig) -> None:
    """Check that `--linear` has an effect: that the model lets another library than torch multiply its matrices.

    Args:
        linear: what `--linear` asks for; empty for what the model was trained with.
        config: settings of the model.

    Raises:
        ConfigError: `--linear` would have no effect.
    """
    why = ""
    if config.precision == "bfloat16":
        why = "model.precision = 'bfloat16', whose products are torch's"
    elif not takes_kernels(config):
        why = f"model.name = {config.name!r} computes its layers in its own way"
    if linear not in ("", "torch") and why:
        raise ConfigError(f"--linear {linear}: has no effect, since {why}; leave it out")


def program_kernels(config: ModelConfig, linear: str, device: str) -> ModelKernels:
    """Code for the layers of a model, in operations that `torch.export` can write down.

    Args:
        config: settings of the model.
        linear: what multiplies matrices, one of `LINEAR_LAYERS`.
        device: where the model was trained: `cpu` or `cuda`.
    """
    layer = bfloat16_linear if config.precision == "bfloat16" else LINEAR_LAYERS[linear]
    return ModelKernels(layer, ordered_interaction if device == "cpu" else torch_interaction)


def ordered_interaction(bottom: Tensor, embeddings: Tensor) -> Tensor:
    """What `ReferenceInteraction` defines, with the same bits, in a third of its time; see `Interaction`.

    Samples are the last dimension of every intermediate tensor, so that each step goes through contiguous memory.
    """
    columns = torch.cat((bottom.unsqueeze(1), embeddings), dim=1).permute(2, 1, 0).contiguous()
    vectors = columns.shape[1]
    first, second = torch.tril_indices(vectors, vectors, offset=-1, device=bottom.device)
    sums = columns.new_zeros(first.shape[0], columns.shape[2])
    for column in columns:
        sums = sums + column.index_select(0, first) * column.index_select(0, second)
    return torch.cat((bottom, sums.t()), dim=1)


@dataclass(frozen=True)
class ProgramInputs:
    """The arguments of the program, in this order.

    Attributes:
        dense: dense features, float32 `[B, N]`.
        rows: for each feature its rows, float32 `[B, D]`; for a ragged one `[V, D]`, one sample after the other.
        lengths: for each ragged feature the number of ids of each sample, int64 `[B]`; they add up to V.
        weights: for each ragged feature with weights, the weights of its ids, float32 `[V]`.
    """

    dense: Tensor
    rows: dict[str, Tensor]
    lengths: dict[str, Tensor]
    weights: dict[str, Tensor]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments as a tuple."""
        return self.dense, self.rows, self.lengths, self.weights

    @classmethod
    def drawn(cls, facts: ModelFacts, features: Sequence[FeatureInfo], lengths: Sequence[int]) -> "ProgramInputs":
        """Random numbers; sample b has `lengths[b]` ids of the first ragged feature, and one more of each next one."""
        generator = torch.Generator().manual_seed(len(lengths))

        def numbers(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        ragged = [feature for feature in features if feature.ragged]
        ids = {feature.name: torch.tensor(lengths) + place for place, feature in enumerate(ragged)}
        counts = {name: int(of_samples.sum()) for name, of_samples in ids.items()}
        rows = {
            feature.name: numbers(counts.get(feature.name, len(lengths)), feature.width) for feature in facts.features
        }
        weights = {feature.name: numbers(counts[feature.name]) for feature in ragged if feature.weighted}
        return cls(numbers(len(lengths), facts.dense_features), rows, ids, weights)


class ServedModel(nn.Module):
    """The pooling of rows, followed by the dense half.

    Args:
        model: the dense half.
        facts: what it was told of its inputs.
        features: the features of the data, in the same order.
    """

    def __init__(self, model: nn.Module, facts: ModelFacts, features: Sequence[FeatureInfo]) -> None:
        super().__init__()
        self.model = model
        self._facts = facts
        self._ragged = {feature.name for feature in features if feature.ragged}

    def forward(
        self, dense: Tensor, rows: dict[str, Tensor], lengths: dict[str, Tensor], weights: dict[str, Tensor]
    ) -> Tensor:
        """Logits, float32 `[B]` or `[B, K]`; arguments as `ProgramInputs`."""
        pooled: dict[int, list[Tensor]] = {width: [] for width in self._facts.widths}
        sequences: dict[str, SequenceRows] = {}
        for feature in self._facts.features:
            own = rows[feature.name]
            if feature.name in self._ragged:
                of_samples = lengths[feature.name]
                own = _scaled(feature, own, of_samples, weights.get(feature.name))
                if feature.is_sequence:
                    sequences[feature.name] = SequenceRows(own + 0.0, of_samples)
                    continue
                own = _summed(own, of_samples)
            elif self._ragged:
                own = own + 0.0  # in a batch with bags, trainers sum all features from 0: -0 becomes 0
            pooled[feature.width].append(own)
        vectors = {
            width: torch.stack(found, 1) if found else dense.new_zeros(dense.shape[0], 0, width)
            for width, found in pooled.items()
        }
        logits: Tensor = self.model(dense, Embeddings(self._facts.features, vectors, sequences))
        return logits


def _scaled(feature: FeatureFacts, rows: Tensor, lengths: Tensor, weights: Tensor | None) -> Tensor:
    """Each row times the weight of its id, which a mean divides by the number of the sample's ids first."""
    scales = weights
    if feature.pooling == "mean":
        shares = torch.ones_like(lengths, dtype=torch.float32) / lengths.clamp(min=1).to(torch.float32)
        scales = torch.repeat_interleave(shares, lengths, output_size=rows.shape[0])
        if weights is not None:
            scales = scales * weights
    return rows if scales is None else rows * scales.unsqueeze(1)


def _summed(rows: Tensor, lengths: Tensor) -> Tensor:
    """The sum of each sample's rows, in their order, `[B, D]`."""
    samples = torch.repeat_interleave(lengths, output_size=rows.shape[0])
    return rows.new_zeros(lengths.shape[0], rows.shape[1]).index_add(0, samples, rows)


def write_down(model: ServedModel, name: str, facts: ModelFacts, features: Sequence[FeatureInfo]) -> ExportedProgram:
    """Trace a model for any number of samples and ids.

    Args:
        model: the model, in evaluation mode.
        name: `model.name`.
        facts: what it was told of its inputs.
        features: the features of the data.

    Raises:
        ConfigError: the model does something that `torch.export` cannot write down.
    """
    inputs = ProgramInputs.drawn(facts, features, _TRACED)
    samples = Dim("samples", min=1)
    ids = {feature: Dim(f"ids_{number}", min=0) for number, feature in enumerate(inputs.lengths)}
    dynamic = (
        {0: samples},
        {feature: {0: ids.get(feature, samples)} for feature in inputs.rows},
        {feature: {0: samples} for feature in inputs.lengths},
        {feature: {0: ids[feature]} for feature in inputs.weights},
    )
    try:
        with blaming_model(name, "torch.export cannot write its forward pass down"), torch.no_grad():
            return torch.export.export(model, inputs.arguments, dynamic_shapes=dynamic)
    except EntryError as error:  # torch's explanation has many lines
        raise ConfigError(f"{str(error).partition(chr(10))[0]}; {_CURE}") from error


def _callable(program: ExportedProgram) -> nn.Module:
    """A program to be called, of which torch looks at the inputs one after the other.

    By default it writes what it checks of them down as code first, which takes by the square of their number: minutes
    for 5,000 features.
    """
    takes_guards = "check_guards" in inspect.signature(program.module).parameters  # earlier versions write none down
    module: nn.Module = program.module(check_guards=False) if takes_guards else program.module()
    return module


def largest_difference(
    program: ExportedProgram, model: ServedModel, facts: ModelFacts, features: Sequence[FeatureInfo]
) -> float:
    """How far a program's logits are from a model's on drawn samples: one, several, without any id, many.

    Args:
        program: the program.
        model: what it should compute.
        facts: what the model was told of its inputs.
        features: the features of the data.

    Returns:
        The largest absolute difference, infinite where one is NaN; 0 where every bit is the same.
    """
    module = _callable(program)
    largest = 0.0
    for lengths in ([1], [0], [2, 0, 1], [0, 0], [3, 1, 0, 2] * 64):
        inputs = ProgramInputs.drawn(facts, features, lengths)
        with torch.no_grad():
            found, expected = module(*inputs.arguments), model(*inputs.arguments)
        if not torch.equal(found.view(torch.int32), expected.view(torch.int32)):
            both_nan = found.isnan() & expected.isnan()
            largest = max(largest, float((found - expected).abs().masked_fill(both_nan, 0).nan_to_num(math.inf).max()))
    return largest
