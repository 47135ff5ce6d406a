"""What the numbers of a sample are, in words: its labels, dense features and look-ups, in their order. Pure.

A model's weights belong to columns by their places. So they do not fit data whose columns stand in another order, or
are made from the same raw rows in another way.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from bagpipe_hpc.storage.shards.manifest import ShardManifest

_ASIDE = ("sample_weight", "timestamp", "group", "unused")
"""Kinds of a schema's columns that no model reads."""
_MADE = ("option ", "column ", "fitted ")
"""Prefixes of words that tell how columns are made; they cannot be compared between two source formats."""
FITTED = ("fitted ",)
"""Prefix of words about numbers that were fitted to the data."""
OF_TABLES = ("column categorical ", "column multi_hot ", "column sequence ")
"""Prefixes of words about columns whose values have rows in tables; the vocabulary says which value has which row."""


def column_words(shards: ShardManifest) -> tuple[str, ...]:
    """What the columns of samples are; equal words are equal columns.

    The source format comes first, then labels and features. How they are made follows: the columns of a schema or the
    options of another format, and the numbers that were fitted.

    Args:
        shards: what was prepared, with or without features that are drawn.
    """
    return tuple(_words(shards.stored()))


def _words(shards: ShardManifest) -> Iterator[str]:
    settings = shards.settings or {}
    yield f"source format {shards.source_format}"
    yield from (f"label {name}" for name in shards.labels)
    yield f"{shards.dense_features} dense features"
    for feature in shards.features:
        kind = f"{', a list' if feature.ragged else ''}{', weighted' if feature.weighted else ''}"
        yield f"feature {feature.name} of table {feature.table}{kind}"
    schema = settings.get("schema")
    if isinstance(schema, dict):
        columns = [*schema.get("columns", ()), *schema.get("derived", ())]
        yield from (_column(column) for column in columns if column.get("kind") not in _ASIDE)
    else:
        yield from (f"option {option}" for option in settings.get("format_options", ()))
    for name, numbers in sorted((settings.get("fitted") or {}).items()):
        yield f"fitted {name} {_plain(numbers)}"


def _column(column: Mapping[str, Any]) -> str:
    keys = {key: value for key, value in column.items() if key not in ("name", "kind")}
    return f"column {column.get('kind')} {column.get('name')}{f' {_plain(keys)}' if keys else ''}"


def _plain(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def differing_columns(
    then: Sequence[str], now: Sequence[str], *, pass_over: tuple[str, ...] = ()
) -> tuple[str, str] | None:
    """The first words in which the columns of two data sets differ, of either; None where they do not.

    Args:
        then: words of one, as `column_words` gives them; empty where they are not recorded.
        now: those of the other.
        pass_over: prefixes of words that may differ.
    """
    if not then or not now:
        return None
    if then[0] != now[0]:  # what two source formats make of a raw row cannot be compared
        pass_over, then, now = _MADE, then[1:], now[1:]
    before, after = ([word for word in words if not word.startswith(pass_over)] for words in (then, now))
    pairs = zip_longest(before, after, fillvalue="nothing more")
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def unknown_columns(then: Sequence[str], now: Sequence[str]) -> str:
    """Why it cannot be told whether the columns of two data sets are made alike; empty where it can.

    Arguments as for `differing_columns`.
    """
    if not then:
        return "columns of the data (data.path): not recorded, and taken for the same"
    if then[0] != now[0]:
        return f"{then[0]} of the data (data.path): now {now[0]}, whose columns are taken for the same"
    return ""


def value_words(shards: ShardManifest, table: str) -> frozenset[str]:
    """How the values of a table are made from raw rows: the schema's entry of each column, without names.

    Empty where no schema says so.
    """
    schema = (shards.settings or {}).get("schema")
    if not isinstance(schema, dict):
        return frozenset()
    own = {feature.name for feature in shards.features if feature.table == table}
    columns = [*schema.get("columns", ()), *schema.get("derived", ())]
    aside = ("name", "table")
    return frozenset(
        _plain({key: value for key, value in column.items() if key not in aside})
        for column in columns
        if column.get("name") in own
    )
