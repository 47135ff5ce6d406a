"""Checks whether the parts of a manifest fit each other; each check raises `FieldError`, which names the field."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from bagpipe_hpc.storage.checked_json import FieldError
from bagpipe_hpc.storage.shards.entries import FeatureInfo, GraphInfo, ShardInfo, TableInfo


def check_names(listed: Mapping[str, Sequence[str]]) -> None:
    """Check that no list, given by its field, names anything twice."""
    for field, names in listed.items():
        for twice in (name for name, count in Counter(names).items() if count > 1):
            raise FieldError(field, f"names {twice!r:.80} twice")


def check_features(features: Sequence[FeatureInfo], tables: Sequence[TableInfo]) -> None:
    """Check that features look up tables that are there, and every table is looked up, where features are listed."""
    names = {table.name for table in tables}
    for number, feature in enumerate(features):
        if feature.table not in names:
            raise FieldError(f"features[{number}].table", f"is {feature.table!r:.80}, no table")
    looked_up = {feature.table for feature in features}
    for number, table in enumerate(tables if features else ()):
        if table.name not in looked_up:
            raise FieldError(f"tables[{number}]", f"is {table.name!r:.80}, which no feature looks up")


def check_tables(tables: Sequence[TableInfo], hashed: Sequence[str]) -> None:
    """Check that there are tables, and that the hashed ones are among them."""
    if not tables:
        raise FieldError("tables", "names none")
    names = [table.name for table in tables]
    check_names({"tables": names, "hashed_tables": hashed})
    for table in hashed:
        if table not in names:
            raise FieldError("hashed_tables", f"names {table!r:.80}, no table")


def check_shards(place: str, shards: Sequence[ShardInfo], features: Sequence[FeatureInfo], labels: int) -> None:
    """Check the entries of a split's shards against the number of labels and the ragged features.

    Args:
        place: of the entries in the manifest.
        shards: the entries.
        features: all features.
        labels: number of labels.
    """
    ragged = [feature for feature in features if feature.ragged]
    for number, shard in enumerate(shards):
        of_labels, of_values = f"{place}[{number}].more_positives", f"{place}[{number}].values"
        if len(shard.more_positives) != labels - 1:
            raise FieldError(of_labels, f"has {len(shard.more_positives)} numbers for {labels} labels")
        if len(shard.values) != len(ragged):
            raise FieldError(of_values, f"has {len(shard.values)} numbers for {len(ragged)} ragged features")
        for feature, values in zip(ragged, shard.values, strict=True):
            if values > shard.rows * feature.longest:
                most = f"{shard.rows} rows of {feature.longest} each"
                raise FieldError(of_values, f"is {values} for {feature.name}, more than {most}")


def check_sums(numbers: Mapping[str, Collection[int]]) -> None:
    """Check that rows, given by their field, add up to numbers of 64 bits."""
    for field, rows in numbers.items():
        if sum(rows) >= 1 << 63:
            raise FieldError(field, f"adds up to {sum(rows)} rows, which is no 64-bit number")


def check_graph(graph: GraphInfo | None, features: Sequence[FeatureInfo]) -> None:
    """Check that nodes are all that shards look up where neighbours are drawn from a graph."""
    if graph is not None and [feature.ragged for feature in features] != [False]:
        raise FieldError("graph", "stands beside other features than the one whose ids are its nodes")
