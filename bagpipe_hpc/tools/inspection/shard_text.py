"""Describes a shard directory."""

from pathlib import Path

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.check import damaged_files
from bagpipe_hpc.storage.shards.manifest import SCHEMA_VERSION, SPLITS, ShardManifest
from bagpipe_hpc.storage.vocabularies.id_uses import tables_with_counts
from bagpipe_hpc.terminal import printable
from bagpipe_hpc.tools.inspection.description import Description
from bagpipe_hpc.tools.text_table import aligned, flattened, size_text

SKIPPED_SHOWN = 10
"""How many skipped rows are listed; the others are only counted."""


def describe_shards(directory: Path, manifest: ShardManifest, verify: bool) -> Description:
    """Samples, tables, features, files, settings and skipped rows; with `verify` every checksum is checked."""
    damaged = damaged_files(directory, manifest, "full" if verify else "quick")
    shards = [(split, shard) for split in SPLITS for shard in manifest.shards(split)]
    facts = [
        ("source format", manifest.source_format),
        *((f"{split} rows", str(manifest.rows(split))) for split in SPLITS),
        *_labels(manifest),
        ("dense features", str(manifest.dense_features)),
        ("embedding tables", f"{len(manifest.tables)} of {sum(manifest.table_rows)} rows"),
        ("vocabularies", manifest.vocabularies.file if manifest.vocabularies else "none"),
        ("counts of ids", _counts(directory, manifest)),
        *([("grown from vocabularies", manifest.grown_from)] if manifest.grown_from else []),
        *([("graph", f"{manifest.graph.file}, {manifest.graph.edges} edges")] if manifest.graph else []),
        ("inputs", ", ".join(source.file for source in manifest.inputs) or "none"),
        ("size of shards", size_text(sum(shard.bytes for _, shard in shards))),
        ("skipped rows", str(len(manifest.skipped_rows))),
        ("files", _state(damaged, verify)),
    ]
    tables = [("table", "rows"), *((table.name, str(table.rows)) for table in manifest.tables)]
    files = [
        ("file", "split", "rows", "label rate", "bytes"),
        *((s.file, split, str(s.rows), f"{s.positives / s.rows:.6f}", str(s.bytes)) for split, s in shards),
    ]
    lines = [f"shards {directory}", "", *aligned(facts), "", *aligned(tables, right=(1,)), ""]
    if manifest.schema_version > SCHEMA_VERSION:
        lines += [*aligned(_features(manifest), right=(2, 3)), ""]
    lines += aligned(files, right=(2, 3, 4))
    if manifest.settings:
        lines += ["", *aligned([("setting", "value"), *flattened(dict(manifest.settings))])]
    if manifest.skipped_rows:
        lines += [
            "",
            "skipped rows",
            *(printable(row, is_layout_kept=False) for row in manifest.skipped_rows[:SKIPPED_SHOWN]),
        ]
        if len(manifest.skipped_rows) > SKIPPED_SHOWN:
            lines.append(f"and {len(manifest.skipped_rows) - SKIPPED_SHOWN} more, in manifest.json")
    return Description("\n".join(lines), tuple(damaged))


def _counts(directory: Path, manifest: ShardManifest) -> str:
    """The tables for which the file of vocabularies says how often ids are looked up."""
    if manifest.vocabularies is None:
        return "none"
    try:
        counted = tables_with_counts(directory, manifest)
    except DataError:
        return "cannot be read"
    if len(counted) == len(manifest.tables):
        return "all tables"
    return f"{len(counted)} of {len(manifest.tables)} tables" if counted else "none"


def _labels(manifest: ShardManifest) -> list[tuple[str, str]]:
    """How often each label is 1, and whether samples have weights."""
    if manifest.schema_version == SCHEMA_VERSION:
        return [("label rate", f"{manifest.label_rate:.6f}")]
    rates = zip(manifest.labels, manifest.label_rates, strict=True)
    weights = "one each" if manifest.weighted_samples else "none"
    return [
        ("label rate", ", ".join(f"{rate:.6f} {label}" for label, rate in rates)),
        ("weights of samples", weights),
    ]


def _features(manifest: ShardManifest) -> list[tuple[str, ...]]:
    """Each feature with its table, the mean and largest number of ids in a sample, and whether ids have weights."""
    shards = manifest.train + manifest.test
    rows = max(1, sum(shard.rows for shard in shards))
    totals = iter([sum(counts) for counts in zip(*(shard.values for shard in shards), strict=True)])
    lines: list[tuple[str, ...]] = [("feature", "table", "ids a row", "at most", "weights of ids")]
    for feature in manifest.features:
        mean = f"{next(totals, 0) / rows:.2f}" if feature.ragged else "1"
        weights = "one each" if feature.weighted else "none"
        lines.append((feature.name, feature.table, mean, str(feature.longest), weights))
    return lines


def _state(damaged: list[str], verify: bool) -> str:
    if damaged:
        return f"damaged or absent: {len(damaged)}: {'; '.join(damaged)}"
    return "as written" if verify else "present, sizes and shapes as written (contents not checked)"
