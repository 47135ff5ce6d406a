"""The description of an exported model's inputs: how raw rows become features, and which features there are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bagpipe_hpc.tools.exporting.source import ExportSource
from bagpipe_hpc.tools.exporting.tables import ExportedTable
from bagpipe_hpc.tools.exporting.vocabularies import ExportedValues
from data_prep.recorded import recorded_format


def _raw(source: ExportSource) -> dict[str, Any] | None:
    """What raw rows look like: their columns, and for text the separator of fields; None where it was not recorded."""
    if not source.shards.settings:
        return None
    layout = recorded_format(source.directory, source.shards)[0].layout
    columns = [{"kind": type(column).__name__.lower(), **asdict(column)} for column in layout.columns]
    return {**asdict(layout), "columns": columns}


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
    return {
        "source_format": source.shards.source_format,
        "raw": _raw(source),
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
                "buckets": reader.buckets,
            }
            for table, reader in zip(tables, readers, strict=True)
        ],
    }
