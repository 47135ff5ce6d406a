"""What an exported model says of its inputs: how raw rows become features, and which features there are."""

from collections.abc import Mapping, Sequence
from typing import Any

from bagpipe_hpc.tools.exporting.source import ExportSource
from bagpipe_hpc.tools.exporting.tables import ExportedTable
from bagpipe_hpc.tools.exporting.vocabularies import TableValueReader


def schema_of(
    source: ExportSource,
    tables: Sequence[ExportedTable],
    files: Mapping[str, str],
    vocabularies: Mapping[str, str | None],
    readers: Sequence[TableValueReader],
) -> dict[str, Any]:
    """The content of `schema.json`.

    Args:
        source: what is exported.
        tables: its tables.
        files: the file of each table.
        vocabularies: the file with its values; None where they were hashed.
        readers: its values.
    """
    facts = {feature.name: feature for feature in source.facts.features}
    return {
        "source_format": source.shards.source_format,
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
                "values": "hashed" if reader.is_hashed else "texts" if reader.is_text else "numbers",
                "buckets": reader.buckets,
            }
            for table, reader in zip(tables, readers, strict=True)
        ],
    }
