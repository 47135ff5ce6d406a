"""Columns in another order, or made in another way, are told apart; what no model reads is not looked at."""

from dataclasses import replace
from typing import Any

import pytest

from bagpipe_hpc.storage.shards.columns import (
    FITTED,
    OF_TABLES,
    column_words,
    differing_columns,
    value_words,
)
from bagpipe_hpc.storage.shards.entries import FeatureInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest

COLUMNS = [
    {"name": "click", "kind": "label"},
    {"name": "price", "kind": "numeric", "log": True},
    {"name": "age", "kind": "numeric"},
    {"name": "user", "kind": "categorical", "table": "t", "values": "integer"},
    {"name": "day", "kind": "timestamp"},
]
FEATURES = (FeatureInfo("user", "t"), FeatureInfo("tags", "t", ragged=True, weighted=True))


def shards(columns: list[dict[str, Any]] = COLUMNS, **settings: Any) -> ShardManifest:
    settings = {"schema": {"file": {}, "columns": columns, "derived": []}} | settings
    return ShardManifest(
        2, "schema", 2, (TableInfo("t", 9),), (), (), features=FEATURES, settings=settings, labels=("click",)
    )


OF_CRITEO = replace(shards(), source_format="criteo", settings={"format_options": ["rare=1"]})


def test_words_name_each_column_in_its_order() -> None:
    assert column_words(shards(fitted={"age": {"mean": 3.5}})) == (
        "source format schema",
        "label click",
        "2 dense features",
        "feature user of table t",
        "feature tags of table t, a list, weighted",
        "column label click",
        'column numeric price {"log": true}',
        "column numeric age",
        'column categorical user {"table": "t", "values": "integer"}',
        'fitted age {"mean": 3.5}',
    )
    assert column_words(OF_CRITEO)[-1] == "option rare=1"
    assert column_words(replace(shards(), settings=None))[-1] == "feature tags of table t, a list, weighted"


@pytest.mark.parametrize(
    ("now", "differing"),
    [
        (shards(COLUMNS[:-1]), None),  # a time is kept aside
        (shards(file={"separator": ";"}), None),
        (
            shards([COLUMNS[0], COLUMNS[2], COLUMNS[1], *COLUMNS[3:]]),
            ('column numeric price {"log": true}', "column numeric age"),
        ),
        (
            shards([*COLUMNS[:2], COLUMNS[2] | {"clip": [0, 9]}, *COLUMNS[3:]]),
            ("column numeric age", 'column numeric age {"clip": [0, 9]}'),
        ),
        (replace(shards(), labels=("buy",)), ("label click", "label buy")),
        (replace(shards(), dense_features=3), ("2 dense features", "3 dense features")),
        (
            replace(shards(), features=FEATURES[::-1]),
            ("feature user of table t", "feature tags of table t, a list, weighted"),
        ),
        (shards(fitted={"age": 1}), ("nothing more", "fitted age 1")),
        (OF_CRITEO, None),  # what another format makes of a row cannot be compared
        (replace(OF_CRITEO, labels=("buy",)), ("label click", "label buy")),  # but what it is called can
    ],
)
def test_the_first_difference_is_named(now: ShardManifest, differing: tuple[str, str] | None) -> None:
    assert differing_columns(column_words(shards()), column_words(now)) == differing


def test_what_is_passed_over_may_differ() -> None:
    then = column_words(shards(fitted={"age": 1}))
    more_often = column_words(shards([*COLUMNS[:3], COLUMNS[3] | {"min_count": 5}], fitted={"age": 2}))
    assert differing_columns(then, more_often, pass_over=FITTED + OF_TABLES) is None
    assert differing_columns(then, more_often, pass_over=OF_TABLES) == ("fitted age 1", "fitted age 2")
    assert differing_columns(then, more_often, pass_over=FITTED) is not None


def test_what_is_not_recorded_does_not_differ() -> None:
    assert differing_columns((), column_words(shards())) is None


def test_values_of_a_table_are_told_apart_by_how_they_are_made() -> None:
    as_text = shards([*COLUMNS[:3], COLUMNS[3] | {"values": "text"}])
    assert value_words(shards(), "t") == {'{"kind": "categorical", "values": "integer"}'} != value_words(as_text, "t")
    assert value_words(shards([*COLUMNS[:3], COLUMNS[3] | {"name": "user"}]), "t") == value_words(shards(), "t")
    assert value_words(OF_CRITEO, "t") == frozenset()
