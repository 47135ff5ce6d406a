"""What is checked and decided before a checkpoint is scored: data, checkpoint, the one segment."""

import logging
from dataclasses import replace
from pathlib import Path

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError, DataError
from bagpipe_hpc.plan.schedule import SegmentKind, scoring_segment
from bagpipe_hpc.run.evaluations import require_auc_group
from bagpipe_hpc.run.graph_features import with_neighbours
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.columns import column_words, differing_columns
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.terminal import counted, shortened

log = logging.getLogger(__name__)


def prepare_scoring(
    config: Config, checkpoint: Checkpoint, split: str, trainers: int, kind: SegmentKind = SegmentKind.EVALUATE
) -> Run:
    """Check data and checkpoint, and lay out a run that scores the one with the other.

    Args:
        config: its settings (`run/start/scored_settings.py`).
        checkpoint: that is scored.
        split: `train` or `test`.
        trainers: that compute; 0 in a one-rank run, which takes the slices of the training.
        kind: evaluation or prediction.

    Raises:
        DataError: the shard directory is incomplete or damaged, or has no rows of that split.
        CheckpointError: the checkpoint is incomplete, or was trained with other vocabularies.
    """
    directory = Path(config.data.path)
    shards = load_manifest(directory)
    log.info("checking %s (%s)", counted(len(shards.train) + len(shards.test), "shard"), config.data.verify)
    verify_shards(directory, shards, config.data.verify)
    require_same_ids(checkpoint, shards, directory)
    checkpoint.verify(quick=True)
    rows = shards.rows(split)
    if not rows:
        other = "test" if split == "train" else "train"
        raise DataError(f"{directory}: has no {split} rows; score the others (--split {other}), or name other data")
    manifest, trained_by = checkpoint.manifest, checkpoint.manifest.arithmetic.trainers
    if not trainers:
        config = replace(config, train=replace(config.train, reference_slices=trained_by))
    epoch = manifest.epoch if manifest.epoch_step else max(0, manifest.epoch - 1)  # that of the last step
    trained = manifest.step, epoch
    segment = scoring_segment(kind, split, rows, manifest.batch_size, trained, trainers or trained_by, trained_by)
    log.info("scoring %s, step %d, with %d %s rows of %s", checkpoint.directory, manifest.step, rows, split, directory)
    run = Run(config, with_neighbours(shards, config.graph), (segment,), checkpoint, trains=False)
    require_auc_group(run)
    return run


def require_same_ids(checkpoint: Checkpoint, shards: ShardManifest, directory: Path) -> None:
    """See that an id of the data, and each column, means what it meant when the checkpoint was trained.

    That is known where both say which vocabularies they have; else tables of the same names and sizes have to do. The
    columns of the training rows themselves are the same by whatever they are described.

    Args:
        checkpoint: that is scored.
        shards: manifest of the data that it is scored with.
        directory: of that data.

    Raises:
        CheckpointError: it means something else.
    """
    then = checkpoint.manifest
    cure = "name the data that it was trained on, or rows that were prepared like it (--like)"
    tables = list(zip(then.table_names, then.table_rows, strict=True))
    found = [(table.name, table.rows) for table in shards.tables]
    if tables != found:
        what = _difference(dict(tables), dict(found))
    elif not then.vocabularies or not shards.vocabularies or then.vocabularies == shards.vocabularies.sha256:
        is_its_own = then.training_data == shards.digest("train")
        differing = None if is_its_own else differing_columns(then.columns, column_words(shards))
        if differing is None:
            return
        was, is_now = map(shortened, differing)
        raise CheckpointError(
            f"{checkpoint.directory}: was trained on other columns than those of {directory}: {was} then, {is_now} "
            f"now; {cure}"
        )
    else:
        what = f"vocabularies {then.vocabularies:.12} then, {shards.vocabularies.sha256:.12} now"
    if then.vocabularies and then.vocabularies == shards.grown_from:
        cure = f"vocabularies of the data have grown since: go on training with them first; or {cure}"
    raise CheckpointError(
        f"{checkpoint.directory}: was trained with other ids than those of {directory}: {what}; {cure}"
    )


def _difference(then: dict[str, int], now: dict[str, int]) -> str:
    """What tables are not the same, by their rows."""
    if list(then) != list(now):
        return f"tables {shortened(', '.join(then))} then, {shortened(', '.join(now))} now"
    name = next(name for name in then if then[name] != now[name])
    return f"{then[name]} rows of table {name} then, {now[name]} now"
