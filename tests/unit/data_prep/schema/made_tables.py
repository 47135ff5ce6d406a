"""Tables as CSV, prepared by a schema, and what their shards hold."""

import csv
import io
from pathlib import Path
from typing import Any

from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import load_schema, to_document


def silent(_: str) -> None:
    """Progress that nobody reads."""


def settings(toml: str, folder: Path, **others: Any) -> PrepareSettings:
    path = folder / "schema.toml"
    path.write_text(toml)
    given = {"min_count": 1, "test_fraction": 0.25, **others}
    return PrepareSettings("schema", schema=to_document(load_schema(str(path))), **given)


def written(value: Any) -> str:
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)


def as_csv(rows: dict[str, list[Any]], missing: str = "") -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows)
    for values in zip(*rows.values(), strict=True):
        writer.writerow([missing if value is None else written(value) for value in values])
    return stream.getvalue().encode()


def read(output: Path, manifest: ShardManifest) -> dict[str, list[Any]]:
    """All that the shards hold, with values instead of their ids."""
    found: dict[str, list[Any]] = {"label": [], "dense": []}
    values = {
        table.name: [None, *read_vocabulary(output, manifest, table.name).tolist()]
        for table in manifest.tables
        if table.name not in manifest.hashed_tables
    }
    for split in ("train", "test"):
        with ClickShards(output, manifest, split) as shards:
            rows = (0, shards.rows)
            found["label"] += shards.read_labels(*rows).tolist()
            found["dense"] += shards.read_dense(*rows).tolist()
            sparse = shards.read_sparse(*rows)
            plain = [feature for feature in manifest.features if not feature.ragged]
            for place, feature in enumerate(plain):
                ids = sparse[:, place].tolist()
                found.setdefault(feature.name, []).extend(values[feature.table][id_] for id_ in ids)
    return found
