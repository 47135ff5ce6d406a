"""How far a run looks ahead, and what cache that takes: the oracle measures it on batches, before any rank trains."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.planning.capacity import (
    CacheNeed,
    Measure,
    beginning_batches,
    expected_need,
    fit_window,
    measure_need,
    tells_by_beginning,
)
from bagpipe_hpc.planning.groups import RunPolicy
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.preparation.prepare import require_weights_alone
from bagpipe_hpc.progress import LongWork
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 10.0


def choose_window(run: Run, trainers: int) -> CacheNeed:
    """The window that the run uses, and the cache that it needs: as its first batches say, or all of them.

    Raises:
        CapacityError: the configured cache does not even hold single batches, or the planner outgrows the memory.
        ConfigError: the settings of the kernels do not go together, or rows that the policy adds would keep more than
            weights.
    """
    if remark := run.sample_orders.remark(trainers):
        log.warning("%s", remark)
    policy = run.policy(trainers)
    require_weights_alone(run.config)
    if remark := policy.remark(max((one.batches for one in run.schedule if one.is_training), default=0)):
        log.warning("%s", remark)
    for remark in _unused_by_planner(run, policy):
        log.warning("%s", remark)
    window = _window_of(run, policy)
    memory_bytes = free_bytes()
    policy.require_memory(window, run.longest_segment, memory_bytes)
    measure = partial(measure_need, policy.planner, memory_bytes=memory_bytes, start_slicing=policy.start_slicing)
    segments = segments_to_measure(run)
    expected = _by_the_beginning(run, policy, measure, window, segments)
    try:
        return fit_window(measure, window, lambda: _read(run, segments), run.config.cache.rows, expected)
    except MemoryError as error:
        raise CapacityError(
            f"lookahead.batches = {run.config.lookahead.batches}: the planner of {run.total_rows} rows finds no more "
            f"memory ({error}); set {policy.smaller_state_or}a shorter lookahead.batches, or a smaller train.batch_size"
        ) from error


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


def _window_of(run: Run, policy: RunPolicy) -> Window:
    """The window that the policy takes; where it is not the one that the settings ask for, the log says so."""
    asked, wanted = run.config.lookahead.batches, run.window
    window = policy.window(wanted)
    if window != wanted:
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
    return window


def _by_the_beginning(
    run: Run, policy: RunPolicy, measure: Measure, window: Window, segments: list[Segment]
) -> Callable[[], CacheNeed] | None:
    """Measures the beginning of a run, where that is wanted, tells enough, and is less than half of all batches."""
    beginnings = _beginnings(segments, beginning_batches(window))
    can_tell = policy.fetches_late and tells_by_beginning(window)
    is_short = 2 * _batches_of(beginnings) < _batches_of(segments)
    if run.config.cache.measure != "beginning" or not (can_tell and is_short):
        return None
    return partial(expected_need, measure, window, partial(_read, run, beginnings), policy.expected_slots)


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
