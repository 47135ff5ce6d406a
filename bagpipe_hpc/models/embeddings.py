"""What a model gets from the tables: a vector for each pooled feature of a sample, all rows of a sequence.

Legend: `B` samples of a slice, `P` pooled features, `D` embedding width, `V` rows of a sequence over all samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        """The rows as a block, zeros behind each sample's last, up to the longest sample of the slice.

        Returns:
            Float32 `[B, L, D]`, and which of them are rows, bool `[B, L]`.
        """
        longest = int(self.lengths.max()) if len(self.lengths) else 0
        places = torch.arange(longest, device=self.lengths.device)
        is_row = places < self.lengths.unsqueeze(1)
        block = self.rows.new_zeros(len(self.lengths), longest, self.rows.shape[1])
        return block.masked_scatter(is_row.unsqueeze(2), self.rows), is_row


class Embeddings:
    """The embeddings of a slice, by the names of the features.

    Args:
        features: all features, in the order of the data.
        pooled: of the features that are no sequences, float32 `[B, P, D]`.
        sequences: of those that are, by name, in the order of the data.
    """

    def __init__(
        self, features: Sequence[FeatureFacts], pooled: Tensor, sequences: Mapping[str, SequenceRows] | None = None
    ) -> None:
        self._features = features
        self._names = [feature.name for feature in features if not feature.is_sequence]
        self._pooled = pooled
        self._sequences = dict(sequences or {})

    def __str__(self) -> str:
        """Shapes, for messages."""
        sequences = (f", {name} {list(found.rows.shape)}" for name, found in self._sequences.items())
        return f"embeddings {list(self._pooled.shape)}{''.join(sequences)}"

    def tensors(self) -> list[Tensor]:
        """All of them: the pooled ones, then the rows of each sequence in the order of the data."""
        return [self._pooled, *(sequence.rows for sequence in self._sequences.values())]

    def detached(self) -> "Embeddings":
        """The same numbers without a history."""
        sequences = {name: SequenceRows(rows.rows.detach(), rows.lengths) for name, rows in self._sequences.items()}
        return Embeddings(self._features, self._pooled.detach(), sequences)

    def requiring_gradients(self) -> "Embeddings":
        """These, whose tensors collect gradients from now on."""
        for tensor in self.tensors():
            tensor.requires_grad_()
        return self

    def part(self, samples: int) -> "Embeddings":
        """A copy of those of the first samples, without a history."""
        sequences = {
            name: SequenceRows(rows.rows[: int(rows.lengths[:samples].sum())].detach().clone(), rows.lengths[:samples])
            for name, rows in self._sequences.items()
        }
        return Embeddings(self._features, self._pooled[:samples].detach().clone(), sequences)

    def stacked(self) -> Tensor:
        """The vectors of all pooled features, float32 `[B, P, D]`, in the order of the data."""
        return self._pooled

    def concatenated(self) -> Tensor:
        """The same side by side, float32 `[B, P * D]`."""
        return self._pooled.flatten(1)

    def __getitem__(self, name: str) -> Tensor:
        """The vector of a pooled feature, float32 `[B, D]`.

        Raises:
            ConfigError: there is no such feature.
        """
        if name not in self._names:
            raise _unknown("pooled feature", name, self._names)
        return self._pooled[:, self._names.index(name)]

    def sequence(self, name: str) -> SequenceRows:
        """The rows of a sequence feature.

        Raises:
            ConfigError: there is no such feature.
        """
        if name not in self._sequences:
            raise _unknown("sequence", name, list(self._sequences))
        return self._sequences[name]


def random_embeddings(facts: ModelFacts, samples: int, generator: torch.Generator, device: torch.device) -> Embeddings:
    """Embeddings of the right shapes for trying a model: normal numbers; sequences have up to five rows a sample."""
    pooled = torch.randn(samples, len(facts.pooled), facts.embedding_dim, generator=generator)
    sequences = {}
    for feature in facts.sequences:
        lengths = torch.randint(0, min(feature.longest, _TRIED_ROWS) + 1, (samples,), generator=generator)
        rows = torch.randn(int(lengths.sum()), feature.width, generator=generator)
        sequences[feature.name] = SequenceRows(rows.to(device), lengths.to(device))
    return Embeddings(facts.features, pooled.to(device), sequences)


def longest_embeddings(facts: ModelFacts, samples: int, device: torch.device) -> Embeddings:
    """Embeddings of the largest shapes that samples may have, of zeros, on any device but for lengths."""
    sequences = {
        feature.name: SequenceRows(
            torch.zeros(samples * feature.longest, feature.width, device=device),
            torch.full((samples,), feature.longest, device=device),
        )
        for feature in facts.sequences
    }
    return Embeddings(
        facts.features, torch.zeros(samples, len(facts.pooled), facts.embedding_dim, device=device), sequences
    )


def _unknown(kind: str, name: str, known: list[str]) -> ConfigError:
    there = f"the data has {', '.join(known)}" if known else "the data has none"
    return ConfigError(f"no {kind} {name!r}: {there} (features.pooling_of says which feature is what)")
