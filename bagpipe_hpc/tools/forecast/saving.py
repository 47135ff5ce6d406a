"""Keeps the plans of a run in a folder, from which the oracle of that run sends them (`train.plans`, docs/plan.md)."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bagpipe_hpc.errors import CapacityError, ConfigError, naming_files
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.schedule import SegmentKind
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.groups import RunPolicy
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation.saved_plans import cuts_of, plan_facts
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.atomic_write import atomic_write, remove_partial_files
from bagpipe_hpc.storage.plans.manifest import (
    KINDS,
    MANIFEST_NAME,
    PLANS_NAME,
    SavedEnd,
    SavedSegment,
    SavedSlots,
    plans_key,
    save_manifest,
)
from bagpipe_hpc.storage.plans.plan_file import PlanWriter
from bagpipe_hpc.storage.run_lock import RunLock
from bagpipe_hpc.tools.forecast.pace import Pace, Tell
from bagpipe_hpc.tools.forecast.sweep import Outlook
from bagpipe_hpc.tools.text_table import size_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Saved:
    """What was written.

    Attributes:
        directory: the folder.
        trainers: number of trainers that the plans are for.
        bytes: size of the file of plans.
        segments: number of segments.
        plans: number of plans of all segments, closing ones included.
    """

    directory: Path
    trainers: int
    bytes: int
    segments: int
    plans: int


def require_folder(directory: Path) -> None:
    """Check that plans can be written to a folder, which is made if it does not exist.

    Raises:
        ConfigError: the folder cannot be made or written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--save {directory}: {error.strerror}; name another folder") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigError(f"--save {directory}: cannot be written to; name another folder")


def save_plans(outlook: Outlook, directory: Path, tell: Tell) -> Saved:
    """Plan a run once more, with the caches that it needs, and write the plans down.

    Earlier plans in the folder are replaced; runs that are reading them go on.

    Args:
        outlook: the outlook of the run.
        directory: the folder, which exists.
        tell: called now and then with a line about progress.

    Raises:
        CapacityError: the disk lacks the room.
        ConfigError: another process saves plans there.
        FileError: a file cannot be written.
    """
    run, trainers = outlook.run, outlook.trainers
    need = outlook.need if outlook.fits else _fitted(run, trainers)
    _require_room(outlook, directory)
    policy = run.policy(trainers)
    planner = policy.planner(need.window, need.groups)
    path = directory / PLANS_NAME
    facts, cuts = plan_facts(run, trainers), cuts_of(run)
    with naming_files(), alone_in(directory):
        remove_partial_files(directory)
        (directory / MANIFEST_NAME).unlink(missing_ok=True)
        with atomic_write(path) as partial, partial.open("xb") as file:
            writer = PlanWriter(file, plans_key(facts, cuts))
            segments = _write_segments(writer, run, policy, planner, tell)
            ends = []
            for kind in KINDS:
                empty = plan_segment(
                    planner, iter(()), policy.start_slicing(), training=kind == SegmentKind.TRAIN.value
                )
                ends.append(SavedEnd(kind, *writer.write(empty)[:2]))
        manifest = save_manifest(
            directory,
            facts=facts,
            cuts=cuts,
            trainers=trainers,
            lookahead=need.window.lookahead,
            group=need.window.group,
            serial=need.window.serial,
            slots=tuple(SavedSlots(slots.shared, slots.private) for slots in need.groups),
            file=PLANS_NAME,
            file_bytes=path.stat().st_size,
            largest_bytes=writer.largest_bytes,
            ends=tuple(ends),
            segments=segments,
        )
    plans = sum(segment.stretch.plans for segment in segments)
    return Saved(directory, trainers, manifest.file_bytes, len(segments), plans)


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep other processes from saving plans in a folder meanwhile."""
    lock = RunLock(directory, log.error, "--save")
    lock.take()
    try:
        yield
    finally:
        lock.release()


def _fitted(run: Run, trainers: int) -> CacheNeed:
    """The window and cache of the run, whose window is cut where `cache.rows` is too small."""
    exact = replace(run.config.cache, measure="all")
    return choose_window(replace(run, config=replace(run.config, cache=exact)), trainers)


def _require_room(outlook: Outlook, directory: Path) -> None:
    """Check that the disk has room for plans of the counted size; plans of evaluations are taken to be as large."""
    batches = sum(segment.batches + 1 for segment in outlook.run.schedule)
    wanted, free = batches * outlook.traffic.plan_bytes, shutil.disk_usage(directory).free
    if wanted > free:
        raise CapacityError(
            f"--save {directory}: plans take about {size_text(int(wanted))} there, and {size_text(free)} are free: "
            "make room, name another folder, or let the oracle plan while it trains"
        )


def _write_segments(
    writer: PlanWriter, run: Run, policy: RunPolicy, planner: Planner, tell: Tell
) -> tuple[SavedSegment, ...]:
    saved = []
    with Pace("saving plans", sum(segment.batches for segment in run.schedule), tell) as pace:

        def checked(plans: Iterator[BatchPlan]) -> Iterator[BatchPlan]:
            for plan in plans:
                policy.require_sound_additions(plan)
                yield plan
                pace.advance(int(not plan.shared.is_closing))

        for segment in run.schedule:
            plans = plan_segment(
                planner,
                run.batches(segment, run.reader_threads),
                policy.start_slicing(),
                policy.keeping(segment),
                training=segment.is_training,
                first_step=segment.first_step,
            )
            saved.append(SavedSegment.of(segment, writer.write(checked(plans))))
    return tuple(saved)
