"""Describes a shard directory."""

from pathlib import Path

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.inspection.text_table import aligned, flattened, printable, size_text
from bagpipe_hpc.storage.shard_check import verify_shards
from bagpipe_hpc.storage.shard_manifest import SPLITS, ShardManifest

SKIPPED_SHOWN = 10
"""Skipped rows that are listed; of the others only the number is said."""


def describe_shards(directory: Path, manifest: ShardManifest, verify: bool) -> str:
    """Samples, tables, files, settings and skipped rows; with `verify` every checksum is checked."""
    shards = [(split, shard) for split in SPLITS for shard in manifest.shards(split)]
    facts = [
        ("source format", manifest.source_format),
        *((f"{split} rows", str(manifest.rows(split))) for split in SPLITS),
        ("label rate", f"{manifest.label_rate:.6f}"),
        ("dense features", str(manifest.dense_features)),
        ("embedding tables", f"{len(manifest.tables)} of {sum(manifest.table_rows)} rows"),
        ("vocabularies", manifest.vocabularies.file if manifest.vocabularies else "none"),
        ("inputs", ", ".join(source.file for source in manifest.inputs) or "none"),
        ("size of shards", size_text(sum(shard.bytes for _, shard in shards))),
        ("skipped rows", str(len(manifest.skipped_rows))),
        ("files", _state(directory, manifest, verify)),
    ]
    tables = [("table", "rows"), *((table.name, str(table.rows)) for table in manifest.tables)]
    files = [
        ("file", "split", "rows", "label rate", "bytes"),
        *((s.file, split, str(s.rows), f"{s.positives / s.rows:.6f}", str(s.bytes)) for split, s in shards),
    ]
    lines = [f"shards {directory}", "", *aligned(facts), "", *aligned(tables, right=(1,)), ""]
    lines += aligned(files, right=(2, 3, 4))
    if manifest.settings:
        lines += ["", *aligned([("setting", "value"), *flattened(dict(manifest.settings))])]
    if manifest.skipped_rows:
        lines += ["", "skipped rows", *map(printable, manifest.skipped_rows[:SKIPPED_SHOWN])]
        if len(manifest.skipped_rows) > SKIPPED_SHOWN:
            lines.append(f"and {len(manifest.skipped_rows) - SKIPPED_SHOWN} more, in manifest.json")
    return "\n".join(lines)


def _state(directory: Path, manifest: ShardManifest, verify: bool) -> str:
    try:
        verify_shards(directory, manifest, "full" if verify else "quick")
    except DataError as error:
        return f"damaged or absent: {error}"
    return "as written" if verify else "present, sizes and shapes as written (contents not checked)"
