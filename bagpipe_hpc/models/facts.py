"""What a model is told before it is made: which inputs it will get. Imports no torch: all ranks know it.

Legend: `N` dense features, `D` embedding width, `K` labels.
"""

from dataclasses import dataclass

from bagpipe_hpc.config.sections.data import SEQUENCE
from bagpipe_hpc.errors import ConfigError


@dataclass(frozen=True)
class FeatureFacts:
    """What a model knows of a feature: a column of look-ups in a table.

    Attributes:
        name: of the feature.
        width: numbers D of each of its rows.
        pooling: `sum` or `mean`: the rows of a sample become one vector (one row stays as it is); `sequence`: they are
            given to the model one by one.
        longest: most rows of a sample, 1 or more.
        is_drawn: whether every sample has `longest` rows, which are drawn from a graph: hop h of `graph.fan_outs`.
    """

    name: str
    width: int
    pooling: str = "sum"
    longest: int = 1
    is_drawn: bool = False

    @property
    def is_sequence(self) -> bool:
        """Whether a model gets its rows one by one."""
        return self.pooling == SEQUENCE


@dataclass(frozen=True)
class ModelFacts:
    """What a model's sizes depend on besides its own settings.

    Attributes:
        dense_features: number N of dense features of a sample; 0 or more.
        features: the look-ups of a sample, in the order of the data.
        seed: of the first weights.
        labels: number K of logits of a sample.
    """

    dense_features: int
    features: tuple[FeatureFacts, ...]
    seed: int
    labels: int = 1

    @classmethod
    def one_hot(cls, dense_features: int, sparse_features: int, embedding_dim: int, seed: int) -> "ModelFacts":
        """Facts of samples that look up one row in each of `sparse_features` tables, `C1` and so on."""
        features = (FeatureFacts(f"C{number}", embedding_dim) for number in range(1, sparse_features + 1))
        return cls(dense_features, tuple(features), seed)

    @property
    def pooled(self) -> tuple[FeatureFacts, ...]:
        """The features of which a model gets a vector."""
        return tuple(feature for feature in self.features if not feature.is_sequence)

    @property
    def sequences(self) -> tuple[FeatureFacts, ...]:
        """The features of which a model gets all rows."""
        return tuple(feature for feature in self.features if feature.is_sequence)

    @property
    def widths(self) -> tuple[int, ...]:
        """Different widths of rows, in the order of the features that have them first."""
        return tuple(dict.fromkeys(feature.width for feature in self.features))

    @property
    def embedding_dim(self) -> int:
        """Width D of the rows of all features.

        Raises:
            ConfigError: they have several.
        """
        if len(self.widths) > 1:
            raise ConfigError(
                f"model.embedding_dim_of: the model takes rows of one width, and its features have {self.widths}; "
                "leave it out, or use a model that puts vectors side by side (docs/features.md)"
            )
        return self.widths[0]
