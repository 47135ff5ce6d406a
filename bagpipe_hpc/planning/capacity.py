"""How many slots a window needs, and the longest window that a given cache allows."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from sys import maxsize

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import Slicing
from bagpipe_hpc.planning.groups import slots_by_group
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import measure_segment
from bagpipe_hpc.planning.slots import MOST_SLOTS, CacheSlots
from bagpipe_hpc.planning.window import Window

log = logging.getLogger(__name__)

Segments = Callable[[], Iterator[Iterable[Bags]]]
"""Starts a new pass over the batches of every segment of a run."""
BuildPlanner = Callable[[Window], Planner]
"""Makes a planner of the run for a window, with as many slots as it takes."""
StartSlicing = Callable[[], Slicing]
"""Starts to give slices to the batches of a segment."""


@dataclass(frozen=True)
class CacheNeed:
    """Slots that a window needs on each trainer.

    Attributes:
        window: the window.
        groups: the slots for each group of tables: the largest number of rows that are resident on all trainers at
            once, and of private slots in use at once, over all trainers.
        planner_bytes: memory that the planner took to find that out, and takes again in the run.
    """

    window: Window
    groups: tuple[CacheSlots, ...]
    planner_bytes: int = field(default=0, compare=False)

    @property
    def shared_rows(self) -> int:
        """Shared slots of all groups."""
        return sum(group.shared for group in self.groups)

    @property
    def private_rows(self) -> int:
        """Private slots of all groups."""
        return sum(group.private for group in self.groups)

    @property
    def total_rows(self) -> int:
        """Slots of a trainer's caches."""
        return self.shared_rows + self.private_rows


def measure_need(
    build: BuildPlanner,
    window: Window,
    segments: Segments,
    memory_bytes: int = maxsize,
    start_slicing: StartSlicing | None = None,
) -> CacheNeed:
    """Run a planner over all segments without capacity limits and read off what it used: exact, not a bound.

    Raises:
        CapacityError: the planner outgrows `memory_bytes`, or the cache the numbers that slots can have.
    """
    planner = build(window)
    for batches in segments():
        measure_segment(
            planner, within_memory(planner, batches, memory_bytes), start_slicing() if start_slicing else None
        )
    size, groups = planner.size(), slots_by_group(planner)
    if (most := max(group.total for group in groups)) > MOST_SLOTS:
        raise CapacityError(
            f"lookahead.batches = {window.lookahead}: needs a cache of {most} rows, and slots are numbered up to "
            f"{MOST_SLOTS}; set a smaller lookahead.batches or train.batch_size"
        )
    need = CacheNeed(window, groups, size.state_bytes + size.window_bytes)
    log.info("a window of %d batches needs a cache of %d rows", window.lookahead, need.total_rows)
    return need


def within_memory(planner: Planner, batches: Iterable[Bags], memory_bytes: int) -> Iterator[Bags]:
    """The batches for a planner, whose memory is looked at some 16 times while its window fills, and ever after.

    Raises:
        CapacityError: the planner has outgrown `memory_bytes`.
    """
    lookahead = planner.window.lookahead
    for number, rows in enumerate(batches):
        yield rows
        if number % -(-lookahead // 16) == 0:
            size = planner.size()
            if (taken := size.state_bytes + size.window_bytes) > memory_bytes:
                raise CapacityError(
                    f"lookahead.batches = {lookahead}: with {number + 1} batches read, the planner takes "
                    f"{taken / 1e9:.1f} GB, and {memory_bytes / 1e9:.1f} GB were free; set a shorter "
                    "lookahead.batches or a smaller train.batch_size"
                )


def shorter_window(wanted: Window, lookahead: int) -> Window:
    """The wanted window cut to `lookahead` batches, its group in proportion and below the look-ahead."""
    group = max(1, wanted.group * lookahead // wanted.lookahead)
    return Window(lookahead, min(group, max(1, lookahead - 1)))


def fit_window(
    build: BuildPlanner,
    wanted: Window,
    segments: Segments,
    cache_rows: int,
    memory_bytes: int = maxsize,
    start_slicing: StartSlicing | None = None,
) -> CacheNeed:
    """The longest window up to `wanted` whose rows fit the cache, found by bisection, before a step is trained.

    Args:
        build: makes the run's planner for a window.
        wanted: the configured window.
        segments: the batches of the whole run.
        cache_rows: slots of a trainer's caches; 0 for as many as `wanted` needs.
        memory_bytes: that the planner may take.
        start_slicing: gives samples to trainers, anew in each segment; contiguous slices if it is not given.

    Raises:
        CapacityError: not even single batches fit, or the planner takes more memory.
    """
    need = measure_need(build, wanted, segments, memory_bytes, start_slicing)
    if not cache_rows or need.total_rows <= cache_rows:
        return need
    smallest = need
    if wanted.lookahead > 1:
        smallest = measure_need(build, Window(1, 1), segments, start_slicing=start_slicing)
    if smallest.total_rows > cache_rows:
        raise CapacityError(
            f"cache.rows = {cache_rows}: a single batch needs {smallest.total_rows} rows "
            f"({smallest.shared_rows} shared, {smallest.private_rows} private) and a window of {wanted.lookahead} "
            f"batches {need.total_rows}; raise cache.rows or lower train.batch_size"
        )
    fitting, too_long = smallest, wanted.lookahead
    while too_long - fitting.window.lookahead > 1:
        middle = shorter_window(wanted, (fitting.window.lookahead + too_long) // 2)
        candidate = measure_need(build, middle, segments, start_slicing=start_slicing)
        if candidate.total_rows <= cache_rows:
            fitting = candidate
        else:
            too_long = middle.lookahead
    log.warning(
        "cache.rows = %d is too small for lookahead.batches = %d, which needs %d rows: it is cut to %d (%d rows)",
        cache_rows,
        wanted.lookahead,
        need.total_rows,
        fitting.window.lookahead,
        fitting.total_rows,
    )
    return fitting
