"""The description of an exported model's inputs: how raw rows become features, and which features there are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bagpipe_hpc.tools.exporting.source import ExportSource
from bagpipe_hpc.tools.exporting.tables import ExportedTable
from bagpipe_hpc.tools.exporting.vocabularies import ExportedValues, kind_of
from data_prep.formats.columns import Values
from data_prep.formats.layout import RowLayout
from data_prep.recorded import recorded_format


def _layout(source: ExportSource) -> RowLayout | None:
    """What raw rows look like; None where it was not recorded."""
    return recorded_format(source.directory, source.shards)[0].layout if source.shards.settings else None


def _raw(layout: RowLayout) -> dict[str, Any]:
    """Its columns, and for text the separator of fields."""
    columns = [{"kind": type(column).__name__.lower(), **asdict(column)} for column in layout.columns]
    return {**asdict(layout), "columns": columns}


def value_kinds(layout: RowLayout) -> dict[str, str]:
    """By table, which kind its raw values are, be they hashed or not."""
    return {table.name: kind_of(table.values is Values.TEXT) for table in layout.tables}


def schema_of(
    source: ExportSource,
    tables: Sequence[ExportedTable],
    files: Mapping[str, str],
    vocabularies: Mapping[str, str | None],
    readers: Sequence[ExportedValues],
) -> dict[str, Any]:
    """The content of `schema.json`.

    Args:
        source: what is exported.
        tables: its tables.
        files: the file of each table.
        vocabularies: the file with the values of each table; None where they were hashed.
        readers: the values of each table.
    """
    facts = {feature.name: feature for feature in source.facts.features}
    layout = _layout(source)
    kinds = value_kinds(layout) if layout else {}
    return {
        "source_format": source.shards.source_format,
        "raw": None if layout is None else _raw(layout),
        "preparation": dict(source.shards.settings or {}),
        "labels": list(source.shards.labels),
        "dense_features": source.shards.dense_features,
        "features": [
            {
                "name": feature.name,
                "table": feature.table,
                "ragged": feature.ragged,
                "weighted": feature.weighted,
                "pooling": facts[feature.name].pooling,
                "most_ids": most,
            }
            for feature, most in zip(source.shards.features, source.most_ids, strict=True)
        ],
        "tables": [
            {
                "name": table.name,
                "rows": table.rows,
                "width": table.width,
                "file": files[table.name],
                "vocabulary": vocabularies[table.name],
                "values": reader.kind,
                "hashes": kinds.get(table.name) if reader.is_hashed else None,
                "buckets": reader.buckets,
            }
            for table, reader in zip(tables, readers, strict=True)
        ],
    }
