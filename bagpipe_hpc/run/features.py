"""What a run makes of the data's features and tables: the settings of `[features]` beside what the shards hold."""

from collections.abc import Mapping, Sequence
from typing import Any

from bagpipe_hpc.config.schema import FeaturesConfig, ModelConfig
from bagpipe_hpc.config.sections.data import SEQUENCE
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.storage.shards.entries import DrawnFeature, FeatureInfo

MOST_ROWS = 1 << 16
"""Of a sequence: a model is tried on the longest before anything is read, so no wrong number may decide that size."""


def table_widths(config: ModelConfig, tables: Sequence[str]) -> tuple[int, ...]:
    """Width of the rows of each table.

    Args:
        config: the settings.
        tables: their names.

    Raises:
        ConfigError: a setting names a table that the data does not have.
    """
    _require_known("model.embedding_dim_of", config.embedding_dim_of, tables, "table")
    return tuple(config.embedding_dim_of.get(name, config.embedding_dim) for name in tables)


def feature_facts(
    config: FeaturesConfig, features: Sequence[FeatureInfo], widths: Mapping[str, int]
) -> tuple[FeatureFacts, ...]:
    """What a model is told of each feature.

    Args:
        config: the settings.
        features: of the data.
        widths: of the rows of each table, by its name.

    Raises:
        ConfigError: a setting names a feature that the data does not have, or does not have as it says.
    """
    _require_known("features.pooling_of", config.pooling_of, [feature.name for feature in features])
    facts = []
    for feature, limit in zip(features, read_limits(config, features), strict=True):
        pooling = config.pooling_of.get(feature.name, config.pooling if feature.ragged else "sum")
        if pooling == SEQUENCE and not feature.ragged:
            raise ConfigError(
                f"features.pooling_of = {{ {feature.name} = {pooling!r} }}: a sample has one id of it, which is no "
                "sequence; leave it out"
            )
        longest = min(limit, feature.longest) if limit else feature.longest
        if pooling == SEQUENCE and longest > MOST_ROWS:
            raise ConfigError(
                f"data.path: a sample has up to {longest} ids of {feature.name}, and a sequence has {MOST_ROWS} at "
                f"most; set features.longest_of = {{ {feature.name} = {MOST_ROWS} }} or less, or another pooling"
            )
        is_drawn = isinstance(feature, DrawnFeature)
        facts.append(FeatureFacts(feature.name, widths[feature.table], pooling, max(1, longest), is_drawn))
    return tuple(facts)


def read_limits(config: FeaturesConfig, features: Sequence[FeatureInfo]) -> tuple[int, ...]:
    """Most ids of a sample that are read, for each feature; 0 for all.

    Raises:
        ConfigError: as for `feature_facts`.
    """
    ragged = [feature.name for feature in features if feature.ragged]
    _require_known("features.longest_of", config.longest_of, ragged, "feature with several ids a sample")
    limits = tuple(config.longest_of.get(feature.name, config.longest) if feature.ragged else 0 for feature in features)
    for feature, limit in zip(features, limits, strict=True):
        if isinstance(feature, DrawnFeature) and limit:
            raise ConfigError(
                f"features.longest, longest_of: {limit} nodes of {feature.name} are asked for, and graph.fan_outs "
                "alone says how many are drawn; leave it out"
            )
    return limits


def _require_known(key: str, values: dict[str, Any], known: Sequence[str], what: str = "feature") -> None:
    for name in values:
        if name not in known:
            there = f"the data has {', '.join(known)}" if known else "the data has none"
            raise ConfigError(f"{key} = {values!r}: {name!r} is no {what}; {there}")
