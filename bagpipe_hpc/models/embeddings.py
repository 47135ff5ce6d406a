"""What a model gets from the tables: a vector for each pooled feature of a sample, all rows of a sequence.

Legend: `B` samples of a slice, `P` pooled features of a width, `D` that width, `V` rows of a sequence over all samples.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.facts import FeatureFacts, ModelFacts

_TRIED_ROWS = 5


@dataclass(frozen=True)
class SequenceRows:
    """The rows of a sequence feature, one sample after the other, in the order of the data.

    Attributes:
        rows: float32 `[V, D]`, differentiable.
        lengths: rows of each sample, int64 `[B]`; they add up to V.
    """

    rows: Tensor
    lengths: Tensor

    def padded(self) -> tuple[Tensor, Tensor]:
        """The rows as a block, with zeros after each sample's last one, up to the longest sample of the slice.

        Returns:
            Float32 `[B, L, D]`, and which of them are rows, bool `[B, L]`.
        """
        samples = self.lengths.shape[0]
        # Not int(...), which torch.export cannot follow.
        longest: int = self.lengths.max().item() if samples else 0  # type: ignore[assignment]
        places = torch.arange(longest, device=self.lengths.device)
        is_row = places < self.lengths.unsqueeze(1)
        block = self.rows.new_zeros(samples, longest, self.rows.shape[1])
        return block.masked_scatter(is_row.unsqueeze(2), self.rows), is_row


class _Tensors(NamedTuple):
    """What embeddings hold; as the arguments of `Embeddings`."""

    pooled: dict[int, Tensor]
    sequences: dict[str, SequenceRows]


class Embeddings:
    """The embeddings of a slice, by the names of the features.

    Where they are `coming`, they are waited for only when a model first asks for one. What it computes before that,
    such as a bottom MLP, runs meanwhile.

    Args:
        features: all features, in the order of the data.
        pooled: of the features that are no sequences, by their widths: float32 `[B, P, D]` each. Every width that a
            feature has is there, with P = 0 where only sequences have it.
        sequences: of those that are, by name, in the order of the data.
    """

    def __init__(
        self,
        features: Sequence[FeatureFacts],
        pooled: Mapping[int, Tensor],
        sequences: Mapping[str, SequenceRows] | None = None,
    ) -> None:
        self._features = features
        in_order = {width: pooled[width] for width in dict.fromkeys(feature.width for feature in features)}
        tensors = _Tensors(in_order, dict(sequences or {}))
        self._take: Callable[[], _Tensors] = lambda: tensors

    @classmethod
    def coming(cls, features: Sequence[FeatureFacts], come: Callable[[], "Embeddings"]) -> "Embeddings":
        """Embeddings that `come` gives, of the same features; it is called once, when they are first asked for."""
        found = cls.__new__(cls)
        found._features = features
        found._take = functools.cache(lambda: come()._take())
        return found

    @functools.cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        return pooled_places(self._features)

    @property
    def _pooled(self) -> dict[int, Tensor]:
        return self._take().pooled

    @property
    def _sequences(self) -> dict[str, SequenceRows]:
        return self._take().sequences

    @classmethod
    def of_stacked(cls, features: Sequence[FeatureFacts], pooled: Tensor) -> "Embeddings":
        """Embeddings of features of one width, none of them a sequence: `pooled` is float32 `[B, P, D]`."""
        return cls(features, {pooled.shape[2]: pooled})

    def __str__(self) -> str:
        """Shapes, for messages."""
        pooled = ", ".join(str(list(of_width.shape)) for of_width in self._pooled.values())
        sequences = (f", {name} {list(found.rows.shape)}" for name, found in self._sequences.items())
        return f"embeddings {pooled}{''.join(sequences)}"

    def by_width(self) -> dict[int, list[Tensor]]:
        """All tensors of each width: that of the pooled features, then the rows of each sequence in its order."""
        tensors = {width: [of_width] for width, of_width in self._pooled.items()}
        for sequence in self._sequences.values():
            tensors[sequence.rows.shape[1]].append(sequence.rows)
        return tensors

    def tensors(self) -> list[Tensor]:
        """All tensors, width after width."""
        return [tensor for of_width in self.by_width().values() for tensor in of_width]

    def detached(self) -> "Embeddings":
        """The same numbers without a history."""
        sequences = {name: SequenceRows(rows.rows.detach(), rows.lengths) for name, rows in self._sequences.items()}
        pooled = {width: of_width.detach() for width, of_width in self._pooled.items()}
        return Embeddings(self._features, pooled, sequences)

    def requiring_gradients(self) -> "Embeddings":
        """Let the tensors collect gradients from now on; returns the embeddings themselves."""
        for tensor in self.tensors():
            tensor.requires_grad_()
        return self

    def part(self, samples: int, first: int = 0) -> "Embeddings":
        """A copy of so many samples' embeddings, from the sample `first` on, without a history."""
        own = slice(first, first + samples)
        sequences = {}
        for name, found in self._sequences.items():
            begin, count = int(found.lengths[:first].sum()), int(found.lengths[own].sum())
            sequences[name] = SequenceRows(found.rows[begin : begin + count].detach().clone(), found.lengths[own])
        pooled = {width: of_width[own].detach().clone() for width, of_width in self._pooled.items()}
        return Embeddings(self._features, pooled, sequences)

    def stacked(self) -> Tensor:
        """The vectors of all pooled features, float32 `[B, P, D]`, in the order of the data.

        Raises:
            ConfigError: they have several widths.
        """
        if len(self._pooled) > 1:
            raise ConfigError(
                f"model.embedding_dim_of: vectors of widths {list(self._pooled)} cannot be stacked; use "
                "stacked_by_width() or concatenated()"
            )
        (pooled,) = self._pooled.values()
        return pooled

    def stacked_by_width(self) -> dict[int, Tensor]:
        """The vectors of the pooled features of each width D, float32 `[B, P, D]`, in the order of the data."""
        return dict(self._pooled)

    def concatenated(self) -> Tensor:
        """The vectors of all pooled features side by side, float32 `[B, sum of their widths]`.

        They are in the order of the data where they have one width; else width after width, each in that order.
        """
        flat = [of_width.flatten(1) for of_width in self._pooled.values()]
        return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)

    def __getitem__(self, name: str) -> Tensor:
        """The vector of a pooled feature, float32 `[B, D]`.

        Raises:
            ConfigError: there is no such feature.
        """
        if name not in self._places:
            raise _unknown("pooled feature", name, list(self._places))
        width, place = self._places[name]
        return self._pooled[width][:, place]

    def sequence(self, name: str) -> SequenceRows:
        """The rows of a sequence feature.

        Raises:
            ConfigError: there is no such feature.
        """
        if name not in self._sequences:
            raise _unknown("sequence", name, list(self._sequences))
        return self._sequences[name]


def pooled_places(features: Sequence[FeatureFacts]) -> dict[str, tuple[int, int]]:
    """The width of each pooled feature, and its place among the pooled features of that width; by name."""
    seen = dict.fromkeys((feature.width for feature in features), 0)
    places = {}
    for feature in features:
        if not feature.is_sequence:
            places[feature.name] = feature.width, seen[feature.width]
            seen[feature.width] += 1
    return places


def _of_widths(facts: ModelFacts, make: Callable[[int, int], Tensor]) -> dict[int, Tensor]:
    """For each width what `make` gives for the number of pooled features that have it, and the width."""
    counts = dict.fromkeys(facts.widths, 0)
    for feature in facts.pooled:
        counts[feature.width] += 1
    return {width: make(count, width) for width, count in counts.items()}


def random_embeddings(facts: ModelFacts, samples: int, generator: torch.Generator, device: torch.device) -> Embeddings:
    """Embeddings of the right shapes for trying a model: normal numbers.

    Sequences have up to five rows a sample, drawn ones all of theirs.
    """
    pooled = _of_widths(facts, lambda count, width: torch.randn(samples, count, width, generator=generator).to(device))
    sequences = {}
    for feature in facts.sequences:
        lengths = torch.randint(0, min(feature.longest, _TRIED_ROWS) + 1, (samples,), generator=generator)
        if feature.is_drawn:
            lengths = torch.full_like(lengths, feature.longest)
        rows = torch.randn(int(lengths.sum()), feature.width, generator=generator)
        sequences[feature.name] = SequenceRows(rows.to(device), lengths.to(device))
    return Embeddings(facts.features, pooled, sequences)


def longest_embeddings(facts: ModelFacts, samples: int, device: torch.device) -> Embeddings:
    """Embeddings of the largest shapes that samples may have, of zeros, on any device."""
    sequences = {
        feature.name: SequenceRows(
            torch.zeros(samples * feature.longest, feature.width, device=device),
            torch.full((samples,), feature.longest, device=device),
        )
        for feature in facts.sequences
    }
    pooled = _of_widths(facts, lambda count, width: torch.zeros(samples, count, width, device=device))
    return Embeddings(facts.features, pooled, sequences)


def _unknown(kind: str, name: str, known: list[str]) -> ConfigError:
    there = f"the data has {', '.join(known)}" if known else "the data has none"
    return ConfigError(f"no {kind} {name!r}: {there} (features.pooling_of says which feature is what)")
