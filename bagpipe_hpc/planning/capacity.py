"""How many slots a window needs, and the longest window that a given cache allows.

What a run needs is measured on all its batches, which is exact, or on the first ones only. Then the cache is made
larger than these need (`Policy.expected_slots`), and where it is full nevertheless, the planner lets rows be fetched
later (`Window.latest_before_prefetch`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from sys import maxsize

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import Slicing
from bagpipe_hpc.planning.groups import slots_by_group
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import measure_segment
from bagpipe_hpc.planning.slots import MOST_SLOTS, CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)

Segments = Callable[[], Iterator[Iterable[Bags]]]
"""Starts a new pass over the batches of every segment of a run."""
_LEAST_BEGINNING = 100
"""Fewest batches that count as the beginning of a run: they are read in a moment, and short runs are measured whole."""
BuildPlanner = Callable[[Window], Planner]
"""Makes a planner of the run for a window, without a limit of slots."""
ExpectedSlots = Callable[[Sequence[CacheSlots]], Sequence[CacheSlots]]
"""The slots of each group's cache, from those that the beginning of a run needs."""
StartSlicing = Callable[[], Slicing]
"""Starts to give slices to the batches of a segment."""


@dataclass(frozen=True)
class CacheNeed:
    """Slots that a window needs on each trainer.

    Attributes:
        window: the window.
        groups: the slots for each group of tables: the largest number of rows that are resident on all trainers at
            once, and of private slots in use at once, over all trainers. Reserved slots come on top.
        planner_bytes: memory that the planner took to find that out, and takes again in the run.
        is_exact: whether the slots were measured on all batches of the run; else on its first ones, with some added.
    """

    window: Window
    groups: tuple[CacheSlots, ...]
    planner_bytes: int = field(default=0, compare=False)
    is_exact: bool = True

    @property
    def shared_rows(self) -> int:
        """Shared slots of all groups that are expected to be used."""
        return sum(group.shared - group.reserved for group in self.groups)

    @property
    def private_rows(self) -> int:
        """Private slots of all groups."""
        return sum(group.private for group in self.groups)

    @property
    def total_rows(self) -> int:
        """Slots of a trainer's caches that are expected to be used."""
        return self.shared_rows + self.private_rows

    @property
    def reserved_rows(self) -> int:
        """Slots beyond `total_rows`, which take memory once they are used."""
        return sum(group.reserved for group in self.groups)

    def reserving(self, rows: int) -> "CacheNeed":
        """The same with at most `rows` reserved slots, in proportion to those that each group has."""
        if not (all_reserved := self.reserved_rows) or rows >= all_reserved:
            return self
        groups = (group.reserving(rows * group.reserved // all_reserved) for group in self.groups)
        return replace(self, groups=tuple(groups))

    def in_memory(self) -> "CacheNeed":
        """The same where nothing can be reserved: twice the slots of copies take memory from the start."""
        groups = (group.reserving(group.shared - group.reserved) for group in self.groups)
        return replace(self, groups=tuple(CacheSlots(group.shared, group.private) for group in groups))


def measure_need(
    build: BuildPlanner,
    window: Window,
    segments: Segments,
    memory_bytes: int = maxsize,
    start_slicing: StartSlicing | None = None,
) -> CacheNeed:
    """Run a planner over all segments without capacity limits and read off what it used: exact, not a bound.

    Args:
        build: makes the run's planner for a window.
        window: the window.
        segments: the batches of the whole run, or of a part of it.
        memory_bytes: memory that the planner may take.
        start_slicing: gives samples to trainers, anew in each segment; contiguous slices if it is not given.

    Raises:
        CapacityError: the planner outgrows `memory_bytes`, or the cache needs more slots than plans can number.
    """
    planner = build(window)
    for batches in segments():
        measure_segment(
            planner, within_memory(planner, batches, memory_bytes), start_slicing() if start_slicing else None
        )
    size = planner.size()
    need = CacheNeed(window, slots_by_group(planner), size.state_bytes + size.window_bytes)
    _require_numbers(need)
    log.info("a window of %s needs a cache of %d rows", counted(window.lookahead, "batch"), need.total_rows)
    return need


Measure = Callable[[Window, Segments], CacheNeed]
"""`measure_need` of one run: its planners, memory and slices are given already."""


def _require_numbers(need: CacheNeed) -> None:
    """See that plans can number the slots.

    Raises:
        CapacityError: they are too many.
    """
    if (most := max(group.total for group in need.groups)) > MOST_SLOTS:
        raise CapacityError(
            f"lookahead.batches = {need.window.lookahead}: needs a cache of {most} rows, and slots are numbered up to "
            f"{MOST_SLOTS}; set a smaller lookahead.batches or train.batch_size"
        )


def beginning_batches(window: Window) -> int:
    """How many first batches of a run tell what it needs: retired rows have then made room, for some groups."""
    return max(_LEAST_BEGINNING, window.lookahead + 2 * window.group)


def tells_by_beginning(window: Window) -> bool:
    """Whether fetches can be put off far enough that a cache measured by a run's beginning suffices for the rest."""
    return 2 * window.group <= window.lookahead


def expected_need(measure: Measure, window: Window, beginnings: Segments, expected_slots: ExpectedSlots) -> CacheNeed:
    """What the beginning of a run needs, and some more.

    Args:
        measure: tells what batches need.
        window: the window.
        beginnings: the first batches of segments.
        expected_slots: gives the slots of the whole run from those of its beginning.

    Raises:
        CapacityError: as for `measure_need`.
    """
    measured = measure(window, beginnings)
    need = replace(measured, groups=tuple(expected_slots(measured.groups)), is_exact=False)
    _require_numbers(need)
    log.info("the cache has %d rows: what the first batches need, and some more", need.total_rows)
    return need


def within_memory(planner: Planner, batches: Iterable[Bags], memory_bytes: int) -> Iterator[Bags]:
    """Pass batches on to a planner, and check its memory some 16 times while its window fills, and as often afterwards.

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
                    f"lookahead.batches = {lookahead}: with {counted(number + 1, 'batch')} read, the planner takes "
                    f"{taken / 1e9:.1f} GB, and {memory_bytes / 1e9:.1f} GB were free; set a shorter "
                    "lookahead.batches or a smaller train.batch_size"
                )


def shorter_window(wanted: Window, lookahead: int) -> Window:
    """The wanted window cut to `lookahead` batches, its group in proportion and below the look-ahead."""
    group = max(1, wanted.group * lookahead // wanted.lookahead)
    return replace(wanted, lookahead=lookahead, group=min(group, max(1, lookahead - 1)))


def fit_window(
    measure: Measure,
    wanted: Window,
    segments: Segments,
    cache_rows: int,
    expected: Callable[[], CacheNeed] | None = None,
) -> CacheNeed:
    """The longest window up to `wanted` whose rows fit the cache, found by bisection, before a step is trained.

    Args:
        measure: tells what batches need.
        wanted: the configured window.
        segments: the batches of the whole run.
        cache_rows: slots of a trainer's caches; 0 for as many as `wanted` needs.
        expected: what `wanted` is expected to need, which replaces a pass over all batches, unless the cache has fewer
            slots. If it is not given, all batches are read.

    Raises:
        CapacityError: not even single batches fit, or the planner takes more memory.
    """
    if expected is not None:
        need = expected()
        if not cache_rows:
            return need
        if need.total_rows <= cache_rows:
            return need.reserving(cache_rows - need.total_rows)
        log.info("cache.rows = %d is less: all batches are read, to find the longest window that fits", cache_rows)
    need = measure(wanted, segments)
    if not cache_rows or need.total_rows <= cache_rows:
        return need
    smallest = need
    if wanted.lookahead > 1:
        smallest = measure(Window(1, 1), segments)
    if smallest.total_rows > cache_rows:
        raise CapacityError(
            f"cache.rows = {cache_rows}: a single batch needs {smallest.total_rows} rows "
            f"({smallest.shared_rows} shared, {smallest.private_rows} private) and a window of "
            f"{counted(wanted.lookahead, 'batch')} {need.total_rows}; raise cache.rows or lower train.batch_size"
        )
    fitting, too_long = smallest, wanted.lookahead
    while too_long - fitting.window.lookahead > 1:
        middle = shorter_window(wanted, (fitting.window.lookahead + too_long) // 2)
        candidate = measure(middle, segments)
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
