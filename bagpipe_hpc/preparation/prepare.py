"""What the oracle checks of a run's data and settings, and how it lays out the run, before any rank trains."""

import logging
from dataclasses import replace
from pathlib import Path

from bagpipe_hpc.config.doors import POLICIES
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.unused import unused_settings
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.schedule import build_schedule, without_effect
from bagpipe_hpc.planning.policy import WatchedRows
from bagpipe_hpc.planning.policy_choice import policy_class
from bagpipe_hpc.preparation.resume import find_start
from bagpipe_hpc.preparation.warm_start import find_warm_start, say_rows_taken
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.evaluations import require_auc_group
from bagpipe_hpc.run.feedback.hearing import find_replayed
from bagpipe_hpc.run.feedback.watch import require_seen
from bagpipe_hpc.run.graph_features import with_neighbours
from bagpipe_hpc.run.output.folder import is_own_checkpoint
from bagpipe_hpc.run.row_group import describe_widths
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.sample_orders import SampleOrders
from bagpipe_hpc.run.start.data_lineage import data_step
from bagpipe_hpc.run.start.kept_evaluations import find_kept
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.telemetry.metrics_file import SUMMARY_NAME
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)

LARGEST_VERSION = 1 << 24
"""A version is a step number in a float32 column."""


def prepare_run(config: Config) -> Run:
    """Check the data and lay out the run.

    Raises:
        ConfigError: the configuration and the data do not fit each other.
        DataError: the shard directory is incomplete or damaged.
        CheckpointError: the checkpoint to go on from is absent, incomplete or of another training.
    """
    if not config.data.path:
        raise ConfigError("data.path is empty: name a folder written by `bagpipe prepare`, as in data.path=shards")
    directory = Path(config.data.path)
    manifest = load_manifest(directory)
    log.info("checking %s (%s)", counted(len(manifest.train) + len(manifest.test), "shard"), config.data.verify)
    verify_shards(directory, manifest, config.data.verify)
    manifest = with_neighbours(manifest, config.graph)
    start = find_start(config, manifest)
    steps_done = start.manifest.step if start else 0
    before = data_step(start.manifest if start else None, manifest)
    train_rows, test_rows = manifest.rows("train"), manifest.rows("test")
    watched = prepare_policy(config, manifest)
    shown_before = watched.before if watched else ()
    hears = policy_class(config.policy.name).hears(config.policy.settings)
    schedule = build_schedule(config.train, train_rows, test_rows, steps_done, before, shown_before, hears=hears)
    if start and start.manifest.data_step == before:  # else it was of earlier rows
        schedule = [replace(segment, heard=start.manifest.heard) for segment in schedule]
    if config.train.batch_size > train_rows:
        raise ConfigError(
            f"train.batch_size = {config.train.batch_size}: the training data has {train_rows} rows, so no batch would "
            f"ever be full; use {train_rows} at most, or prepare more rows"
        )
    for remark in (*unused_settings(config), *without_effect(config.train, train_rows, test_rows)):
        log.warning(remark)
    run = Run(config, manifest, tuple(schedule), start, None if start else find_warm_start(config, manifest))
    run = replace(run, replayed=find_replayed(run), kept_evaluations=find_kept(run))
    require_seen(run)
    if run.warm_start:
        say_rows_taken(run.warm_start, Path(config.data.path), manifest)
    require_frozen_tables(run)
    if len(run.groups) > 1:
        log.info("%s", describe_widths(run.groups))
    if run.schedule:
        require_auc_group(run)
    for rates in (config.rows_rate, config.dense_rate):
        for remark in rates.remarks(run.total_steps):
            log.warning(remark)
    if config.debug.verify_rows and run.total_steps > LARGEST_VERSION:
        raise ConfigError(
            f"debug.verify_rows = true: versions are exact up to step {LARGEST_VERSION}, and the run has "
            f"{run.total_steps}; set train.max_steps or leave it out"
        )
    return run


def require_frozen_tables(run: Run) -> None:
    """See that `tables.frozen` names tables of the data, if it names any.

    Raises:
        ConfigError: it names none.
    """
    _ = run.frozen_tables  # finding them is the check


def prepare_policy(config: Config, manifest: ShardManifest) -> WatchedRows | None:
    """Let the policy make what it needs of the training rows; which rows it watches then.

    Raises:
        BagpipeError: it cannot.
    """
    policy, training = policy_class(config.policy.name), SampleOrders(config, manifest).training
    with POLICIES.blaming(config.policy.name, "prepare fails"):
        policy.prepare(config.policy.settings, training)
    return policy.watched(config.policy.settings, training)


def nothing_left(run: Run) -> str:
    """Why a run that goes on from a checkpoint has nothing to do; empty if it has."""
    if run.start is None:
        return ""
    was_told = run.steps_done == run.total_steps and (Path(run.config.train.output) / SUMMARY_NAME).exists()
    if run.schedule and not (was_told and is_own_checkpoint(run.config, run.start)):
        return ""
    return f"{run.start.directory} is the end of this run, {counted(run.total_steps, 'step')}: nothing is left to do"


def require_weights_alone(config: Config) -> None:
    """See that rows have weights alone where the policy adds changes: one is added to every number of a record.

    Their gradients are not clipped either: nobody has a row's sum over the batch. Nor do they decay, which is once a
    step: several trainers would each let their own copy of a row do so.

    Raises:
        ConfigError: rows keep an optimizer's state, or a version, or are to be clipped or to decay.
    """
    if not policy_class(config.policy.name).adds_rows:
        return
    adds = f"policy.name = {config.policy.name!r}: adds each trainer's change of a row to all that the row keeps"
    if config.debug.verify_rows:
        raise ConfigError(f"{adds}, and a sum of versions is none: leave out debug.verify_rows = true")
    if config.optimizer.rows_clip_norm:
        raise ConfigError(
            f"{adds}, and optimizer.rows_clip_norm = {config.optimizer.rows_clip_norm} is of a row's gradient over the "
            "whole batch; leave it out"
        )
    if config.optimizer.rows_weight_decay:
        raise ConfigError(
            f"{adds}, and optimizer.rows_weight_decay = {config.optimizer.rows_weight_decay} is once a step for each "
            "row, not once for each of its trainers; leave it out"
        )
    if RowRecord.of(config).state_columns:
        raise ConfigError(
            f"{adds}, and optimizer.rows = {config.optimizer.rows!r} keeps a state: changes of it by several trainers "
            "do not add up to that of the whole batch; set optimizer.rows=sgd, or another one without state"
        )
