"""Settings of features against what the data has."""

from dataclasses import replace

import pytest

from bagpipe_hpc.config.schema import FeaturesConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.run.features import MOST_ROWS, feature_facts, read_limits
from bagpipe_hpc.storage.shards.manifest import FeatureInfo
from tests.ragged_shards import FEATURES

ONE_HOT = FEATURES[:1]
WIDTHS = dict.fromkeys((feature.table for feature in FEATURES), 8)


def test_each_feature_has_its_pooling_and_its_longest_bag() -> None:
    config = FeaturesConfig(pooling="mean", pooling_of={"history": "sequence"}, longest=3)
    assert feature_facts(config, FEATURES, WIDTHS) == (
        FeatureFacts("user", 8, "sum", 1),
        FeatureFacts("history", 8, "sequence", 3),
        FeatureFacts("item", 8, "sum", 1),
        FeatureFacts("genres", 8, "mean", 3),
    )


def test_nothing_said_sums_all_ids() -> None:
    facts = feature_facts(FeaturesConfig(), FEATURES, WIDTHS)
    assert [(one.pooling, one.longest) for one in facts] == [("sum", 1), ("sum", 6), ("sum", 1), ("sum", 4)]
    assert read_limits(FeaturesConfig(), FEATURES) == (0, 0, 0, 0)


def test_limits_are_of_ragged_features_alone() -> None:
    config = FeaturesConfig(longest=5, longest_of={"genres": 0})
    assert read_limits(config, FEATURES) == (0, 5, 0, 0)
    assert [one.longest for one in feature_facts(config, FEATURES, WIDTHS)] == [1, 5, 1, 4]
    beyond = FeaturesConfig(longest_of={"history": 99})
    assert [one.longest for one in feature_facts(beyond, FEATURES, WIDTHS)] == [1, 6, 1, 4]


@pytest.mark.parametrize(
    ("config", "features", "message"),
    [
        (FeaturesConfig(pooling_of={"gender": "mean"}), FEATURES, "'gender' is no feature; the data has user, history"),
        (FeaturesConfig(longest_of={"user": 3}), FEATURES, "'user' is no feature with several ids a sample; the data"),
        (FeaturesConfig(longest_of={"user": 3}), ONE_HOT, "several ids a sample; the data has none"),
        (FeaturesConfig(pooling_of={"user": "sequence"}), FEATURES, "a sample has one id of it, which is no sequence"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(
    config: FeaturesConfig, features: tuple[FeatureInfo, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        feature_facts(config, features, WIDTHS)


def test_a_sequence_of_too_many_ids_is_refused_before_a_model_is_tried_on_it() -> None:
    (history,) = (feature for feature in FEATURES if feature.name == "history")
    features = (replace(history, longest=MOST_ROWS + 1),)
    config = FeaturesConfig(pooling_of={"history": "sequence"})
    with pytest.raises(ConfigError, match=f"up to {MOST_ROWS + 1} ids of history, and a sequence has {MOST_ROWS}"):
        feature_facts(config, features, WIDTHS)
    (facts,) = feature_facts(replace(config, longest_of={"history": MOST_ROWS}), features, WIDTHS)
    assert facts.longest == MOST_ROWS
