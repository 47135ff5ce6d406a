"""What is checked and decided before any rank starts to train: data, schedule, window."""

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.config.doors import POLICIES
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.unused import unused_settings
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.schedule import Segment, build_schedule, without_effect
from bagpipe_hpc.planning.capacity import CacheNeed, beginning_batches, expected_need, fit_window, tells_by_beginning
from bagpipe_hpc.planning.groups import RunPolicy
from bagpipe_hpc.planning.policy import WatchedRows
from bagpipe_hpc.planning.policy_choice import policy_class
from bagpipe_hpc.preparation.resume import find_start
from bagpipe_hpc.preparation.warm_start import find_warm_start, say_rows_taken
from bagpipe_hpc.progress import LongWork
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.data_lineage import data_step
from bagpipe_hpc.run.evaluations import auc_feature
from bagpipe_hpc.run.graph_features import with_neighbours
from bagpipe_hpc.run.hearing import find_replayed
from bagpipe_hpc.run.kept_evaluations import find_kept
from bagpipe_hpc.run.output_folder import is_own_checkpoint
from bagpipe_hpc.run.row_group import describe_widths
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.sample_orders import SampleOrders
from bagpipe_hpc.run.watch import require_seen
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.telemetry.metrics_file import SUMMARY_NAME
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)

LARGEST_VERSION = 1 << 24
"""A version is a step number in a float32 column."""
_PROGRESS_EVERY_S = 10.0


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
    _ = run.frozen_tables  # whether there are such tables
    if len(run.groups) > 1:
        log.info("%s", describe_widths(run.groups))
    for segment in run.schedule[:1]:
        auc_feature(run, segment)  # whether there is such a feature
    for rates in (config.rows_rate, config.dense_rate):
        for remark in rates.remarks(run.total_steps):
            log.warning(remark)
    if config.debug.verify_rows and run.total_steps > LARGEST_VERSION:
        raise ConfigError(
            f"debug.verify_rows = true: versions are exact up to step {LARGEST_VERSION}, and the run has "
            f"{run.total_steps}; set train.max_steps or leave it out"
        )
    return run


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


def choose_window(run: Run, trainers: int) -> CacheNeed:
    """The window that the run uses, and the cache that it needs: as its first batches say, or all of them.

    Raises:
        CapacityError: the configured cache does not even hold single batches, or the planner outgrows the memory.
        ConfigError: the settings of the kernels do not go together, or rows that the policy adds would keep more than
            weights.
    """
    asked, wanted = run.config.lookahead.batches, run.window
    if remark := run.sample_orders.remark(trainers):
        log.warning("%s", remark)
    policy = run.policy(trainers)
    require_weights_alone(run.config)
    if told := policy.remark(max((one.batches for one in run.schedule if one.is_training), default=0)):
        log.warning("%s", told)
    for unused in _unused_by_planner(run, policy):
        log.warning("%s", unused)
    if (window := policy.window(wanted)) != wanted:
        log.info(
            "policy.name = %r: takes a window of %s in groups of %d, whatever [lookahead] asks for (%d)",
            run.config.policy.name,
            counted(window.lookahead, "batch"),
            window.group,
            asked,
        )
    elif wanted.lookahead < asked:
        log.info(
            "lookahead.batches = %d: the longest segment of the run has %s, and a window of %d plans the same",
            asked,
            counted(run.longest_segment, "batch"),
            wanted.lookahead,
        )
    policy.require_memory(window, run.longest_segment, free_bytes())
    segments = segments_to_measure(run)
    beginnings = _beginnings(segments, beginning_batches(window))
    expected = None
    can_tell = policy.fetches_late and tells_by_beginning(window)
    if run.config.cache.measure == "beginning" and can_tell and 2 * _batches_of(beginnings) < _batches_of(segments):
        read = partial(_read, run, beginnings)
        expected = partial(
            expected_need, policy.planner, window, read, policy.expected_slots, free_bytes(), policy.start_slicing
        )
    try:
        return fit_window(
            policy.planner,
            window,
            lambda: _read(run, segments),
            run.config.cache.rows,
            free_bytes(),
            policy.start_slicing,
            expected,
        )
    except MemoryError as error:
        raise CapacityError(
            f"lookahead.batches = {asked}: the planner of {run.total_rows} rows finds no more memory ({error}); set "
            f"{policy.smaller_state_or}a shorter lookahead.batches, or a smaller train.batch_size"
        ) from error


def _unused_by_planner(run: Run, policy: RunPolicy) -> Iterator[str]:
    """Settings of the native planner, where the policy plans in another way: a line each."""
    if getattr(policy.parts[0], "is_native", False):
        return
    kernels = run.config.kernels
    for name, value in (("planner_state", kernels.planner_state), ("planner_threads", kernels.planner_threads)):
        if value not in ("auto", 0):
            yield (
                f"kernels.{name} = {value!r}: without effect, since it is for the native planner, which does not plan "
                f"here (policy.name = {run.config.policy.name!r}, kernels.backend = {kernels.backend!r})"
            )


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


def segments_to_measure(run: Run) -> list[Segment]:
    """The segments that need caches of different sizes: an evaluation of the same samples comes once."""
    chosen, seen = [], set()
    for segment in run.schedule:
        if not segment.is_training:
            if segment.samples in seen:
                continue
            seen.add(segment.samples)
        chosen.append(segment)
    return chosen


def _beginnings(segments: list[Segment], batches: int) -> list[Segment]:
    """The first batches of training, and of each evaluation."""
    chosen, left = [], batches
    for segment in segments:
        wanted = min(segment.batches, left if segment.is_training else batches)
        if segment.is_training:
            left -= wanted
        if wanted:
            chosen.append(replace(segment, batches=wanted))
    return chosen


def _batches_of(segments: list[Segment]) -> int:
    return sum(segment.batches for segment in segments)


def _read(run: Run, segments: list[Segment]) -> Iterator[Iterable[Bags]]:
    """One pass over the batches of segments to measure, with a line now and then of how far it is."""
    total = _batches_of(segments)
    log.info("reading %s ahead of the run, to measure the cache", counted(total, "batch"))
    spoke_s = time.monotonic()
    done = 0

    def told(batches: Iterator[Bags]) -> Iterator[Bags]:
        nonlocal spoke_s, done
        for batch in batches:
            yield batch
            done += 1
            work.advance()
            if not work.is_shown and time.monotonic() - spoke_s > _PROGRESS_EVERY_S:
                spoke_s = time.monotonic()
                log.info("%d of %d batches read", done, total)

    with LongWork("measuring the cache", total, "batches") as work:
        for segment in segments:
            yield told(run.batches(segment, run.reader_threads))
