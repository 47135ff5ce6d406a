"""Describes a checkpoint."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.storage.checkpoints.saved_rows import SavedRows, stream_rows
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.inspection.description import Description
from bagpipe_hpc.tools.text_table import aligned, flattened, size_text


def describe_checkpoint(checkpoint: Checkpoint, verify: bool) -> Description:
    """Where training stood, tables, files and settings; with `verify` also checksums and a summary of the weights."""
    manifest = checkpoint.manifest
    arithmetic = manifest.arithmetic
    checked, faults = _checked_files(checkpoint, verify)
    what = "contents" if verify else "sizes only"
    facts = [
        ("step", str(manifest.step)),
        ("next batch", f"{manifest.epoch_step} of epoch {manifest.epoch}, both from 0"),
        ("seed", str(manifest.seed)),
        (
            "embedding tables",
            f"{len(manifest.table_rows)} of {manifest.total_rows} rows, {_widths(manifest)} wide",
        ),
        ("row optimizer", ", ".join((manifest.row_optimizer, *manifest.row_state_layout))),
        ("training rows", f"{manifest.train_samples}, digest {manifest.training_data}{_since(manifest)}"),
        ("vocabularies", f"digest {manifest.vocabularies}" if manifest.vocabularies else "not recorded"),
        ("test rows", f"digest {manifest.evaluation_data}"),
        ("evaluations before", _standing(manifest)),
        ("trainers", f"{arithmetic.trainers} of {counted(arithmetic.threads, 'thread')}, {_products(manifest)}"),
        ("servers", str(manifest.servers)),
        ("rows", _kept_rows(checkpoint)),
        ("size", size_text(manifest.total_bytes)),
        ("files", f"{len(faults) or 'none'} of {len(checked)} damaged or absent ({what} checked)"),
    ]
    lines = [f"checkpoint {checkpoint.directory}", "", *aligned(facts), ""]
    lines += [*aligned([("file", "bytes", "state"), *checked], right=(1,)), ""]
    lines += [*_tables(checkpoint, summarise=verify and not faults), ""]
    if not faults:
        lines += [*_dense_weights(checkpoint), ""]
    lines += aligned([("setting", "value"), *flattened(manifest.config)])
    return Description("\n".join(lines), tuple(faults))


def _widths(manifest: CheckpointManifest) -> str:
    """The width of the tables, or the smallest and largest; the list of the tables has each."""
    least, most = min(manifest.widths), max(manifest.widths)
    return str(most) if least == most else f"{least} to {most}"


def _since(manifest: CheckpointManifest) -> str:
    """The step at which training on these rows began, if it was not the first."""
    return f", since step {manifest.data_step}" if manifest.data_step else ""


def _dense_weights(checkpoint: Checkpoint) -> list[str]:
    """Name and shape of each dense weight: what `model.frozen` may name."""
    model, _ = checkpoint.outline_dense()
    return aligned([("dense weight", "shape"), *((name, str(list(tensor.shape))) for name, tensor in model.items())])


def _standing(manifest: CheckpointManifest) -> str:
    """Which evaluation before the checkpoint was the best."""
    standing = manifest.standing
    if standing is None:
        return "none"
    since = f"{standing.without_better} since the last that was better by train.stop_min_delta"
    return f"the best after step {standing.best_step}, {standing.measure} {standing.best:.5f}; {since}"


def _products(manifest: CheckpointManifest) -> str:
    return f"linear layers by {manifest.arithmetic.linear} on {manifest.arithmetic.device}"


def _kept_rows(checkpoint: Checkpoint) -> str:
    """Whether the rows in the files are all of them."""
    base = checkpoint.manifest.base
    return f"those updated since step {base.step}; the others are in the checkpoints before" if base else "all"


def _checked_files(checkpoint: Checkpoint, verify: bool) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Name, size and state of each file, including those of checkpoints that an increment builds on; and the faults."""
    try:
        files = checkpoint.files()
    except CheckpointError as error:
        return [("checkpoints before", "", str(error).removeprefix(f"{checkpoint.directory}: "))], [str(error)]
    rows, faults = [], []
    for layer, info in files:
        try:
            layer.verify_file(info, quick=not verify)
            state = "as written" if verify else "size as written"
        except CheckpointError as error:
            state = str(error).removeprefix(f"{layer.directory / info.file}: ")
            faults.append(str(error))
        name = info.file if layer is checkpoint else f"{layer.directory.name}/{info.file}"
        rows.append((name, str(info.bytes), state))
    return rows, faults


def _tables(checkpoint: Checkpoint, summarise: bool) -> list[str]:
    """Rows of each table, its width where there are several, and a summary of its weights."""
    manifest = checkpoint.manifest
    columns: list[tuple[str, Sequence[object]]] = [("table", manifest.table_names), ("rows", manifest.table_rows)]
    if len(manifest.groups) > 1:
        columns.append(("width", manifest.widths))
    if summarise:
        summaries = zip(*_summaries(checkpoint), strict=True)
        columns += zip(("root mean square", "largest", "not finite"), summaries, strict=True)
    heading = tuple(name for name, _ in columns)
    lines = [tuple(map(str, line)) for line in zip(*(values for _, values in columns), strict=True)]
    return aligned([heading, *lines], right=range(1, len(heading)))


@dataclass
class _Weights:
    """Running summary of the weights of a table."""

    square_sum: float = 0.0
    largest: float = 0.0
    finite: int = 0
    not_finite: int = 0

    def add(self, weights: NDArray[np.float32]) -> None:
        is_finite = np.isfinite(weights)
        finite = weights if is_finite.all() else weights[is_finite]
        self.largest = max(self.largest, float(finite.max(initial=0.0)), -float(finite.min(initial=0.0)))
        self.square_sum += float(np.square(finite, dtype=np.float64).sum())
        self.finite += finite.size
        self.not_finite += weights.size - finite.size


def _summaries(checkpoint: Checkpoint) -> list[tuple[str, str, str]]:
    """A summary of the weights of each table, in the order of the tables."""
    summaries = {}
    for number, group in enumerate(checkpoint.manifest.groups):
        bounds = pairwise(group.tables.offsets.tolist())
        with checkpoint.open_rows(number) as files:
            for table, (begin, end) in zip(group.numbers, bounds, strict=True):
                summaries[table] = _summary(files, checkpoint.manifest, group.width, begin, end)
    return [summaries[table] for table in sorted(summaries)]


def _summary(files: SavedRows, manifest: CheckpointManifest, width: int, begin: int, end: int) -> tuple[str, str, str]:
    """Root mean square and largest absolute value of the finite weights of some rows, and the number of others."""
    step, weights = stream_rows(manifest.record_columns(width)), _Weights()
    for first in range(begin, end, step):
        weights.add(files.read(first, min(first + step, end))[:, :width])
    mean_square = weights.square_sum / max(1, weights.finite)
    return f"{math.sqrt(mean_square):.6g}", f"{weights.largest:.6g}", str(weights.not_finite)
