"""What models ask of their inputs, and the shapes of what goes in and comes out.

Legend: `B` samples, `N` dense features, `P` pooled features, `D` embedding width, `K` labels.
"""

import torch
from torch import Tensor

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts


def refuse_sequences(name: str, facts: ModelFacts) -> None:
    """Check that every feature is pooled, for a model that reads a vector of each.

    Args:
        name: `model.name`.
        facts: sizes of its inputs.

    Raises:
        ConfigError: a feature is a sequence.
    """
    if names := [feature.name for feature in facts.sequences]:
        pooled = ", ".join(f'{feature} = "sum"' for feature in names)
        raise ConfigError(
            f"model.name = {name!r}: has no use for {'a sequence' if len(names) == 1 else 'sequences'}, and the data "
            f"has {', '.join(names)}; set features.pooling_of = {{ {pooled} }}, or use model.name = 'din'"
        )


def require_factors(name: str, facts: ModelFacts) -> None:
    """Check that each row has more numbers than there are labels: first-order weights, then factors.

    Args:
        name: `model.name`.
        facts: sizes of its inputs.

    Raises:
        ConfigError: a row has no more numbers than that.
    """
    narrowest = min(facts.features, key=lambda feature: feature.width)
    if narrowest.width <= facts.labels:
        raise ConfigError(
            f"model.embedding_dim, embedding_dim_of: rows of {narrowest.name} are {narrowest.width} wide, and "
            f"model.name = {name!r} takes the first number of a row, one for each label, as its first-order weight and "
            f"the others as its vector; use {facts.labels + 1} or more"
        )


def side_by_side(dense: Tensor, embeddings: Embeddings) -> Tensor:
    """All numbers of a sample: `[B, N]` and pooled vectors to float32 `[B, N + sum of their widths]`."""
    return torch.cat((dense, embeddings.concatenated()), dim=1)


def side_by_side_width(facts: ModelFacts) -> int:
    """Width of what `side_by_side` gives."""
    return facts.dense_features + sum(feature.width for feature in facts.pooled)


def as_logits(outputs: Tensor) -> Tensor:
    """Outputs of a last layer, `[B, K]`, in the shape of logits: `[B]` for a single label."""
    return outputs.squeeze(1) if outputs.shape[1] == 1 else outputs
