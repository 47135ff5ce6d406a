"""How fast planners plan in the middle of a long segment, one beside the other on the same look-ups."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from bagpipe_hpc.config.schema import LookaheadConfig
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.lookahead.native import NativePlanner
from bagpipe_hpc.planning.planner import DraftingPlanner, Planner, PlannerSize, writing_threads_of
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.tools.report import median

Batches = Sequence[Bags]
Result = TypeVar("Result")


@dataclass
class Pace:
    """Samples per second of a planner's runs.

    Attributes:
        elapsed: of elapsed time.
        processor: of processor time, over all threads.
        critical: of the critical path: the processor time of the calling thread where it works alone, and of the
            slowest thread where all do. Where some threads load a batch while others decide on one, and each of W
            others writes a plan, it is the longest of these paths, of which the last one counts 1 / W. One after the
            other is measured. So long it takes where every thread has an idle core, but for waking up, and for memory
            and caches that cores share.
    """

    elapsed: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    critical: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Medians, for the JSON line."""
        return {
            "samples_per_s": median(self.elapsed),
            "samples_per_cpu_s": median(self.processor),
            "samples_per_critical_s": median(self.critical),
        }


@dataclass(frozen=True)
class PlanFigures:
    """What plans say, and how large they are; means of a batch."""

    look_ups: float
    unique_rows: float
    fetched_rows: float
    plan_bytes: float


def window_of(lookahead: int) -> Window:
    """The window with the default group."""
    return Window(lookahead, LookaheadConfig(batches=lookahead).group_batches)


def ring_batches(lookahead: int) -> int:
    """Batches to draw for a window: a batch comes again when all of its rows are out of the window."""
    return lookahead + max(4, lookahead // 4)


class SteadyPlanner:
    """A planner that goes on and on in one segment: each step plans a batch and loads one.

    Args:
        planner: the planner, which is used for nothing else.
        ring: its batches, taken round and round; at least `ring_batches` of its window.
    """

    def __init__(self, planner: Planner, ring: Batches) -> None:
        self._planner = planner
        self._ring = ring
        self._loaded = 0
        self._loader = ThreadPoolExecutor(1, "loader")
        self._writing = ThreadPoolExecutor(max(1, writing_threads_of(planner)), "writing")
        planner.start_segment(training=True, first_step=0)
        for _ in range(planner.window.lookahead):
            self._load()
        self.run(self.round_batches)  # until a group is written back

    @property
    def round_batches(self) -> int:
        """Steps between two plans that write a group back: what is timed is a multiple of them."""
        return self._planner.window.group

    @property
    def size(self) -> PlannerSize:
        """Memory and slots of the planner."""
        return self._planner.size()

    def run(self, steps: int, see: Callable[[BatchPlan], None] = lambda _: None) -> None:
        """Plan so many batches, as `plan_segment` does; `see` is shown each plan."""
        most = writing_threads_of(self._planner)
        coming: deque[Future[BatchPlan]] = deque()
        for _ in range(steps):
            number = self._next_number()
            loading = self._loader.submit(self._load) if self._planner.loads_beside else None
            write = self._draft(number)
            if most and len(coming) == most:
                see(coming.popleft().result())
            if most:
                coming.append(self._writing.submit(write))
            else:
                see(write())
            loading.result() if loading else self._load()
        for written in coming:
            see(written.result())

    def critical_s(self, steps: int) -> float:
        """Plan so many batches, one part of the work after the other. Returns the seconds of the critical path."""
        beside, writing = self._planner.loads_beside, max(1, writing_threads_of(self._planner))
        whole_s = 0.0
        for _ in range(steps):
            write, decide_s = self._timed(partial(self._draft, self._next_number()))
            _, write_s = self._timed(write)
            _, load_s = self._timed(self._load, loading=beside)
            whole_s += max(decide_s, load_s, write_s / writing) if beside else max(decide_s + load_s, write_s / writing)
        return whole_s

    def _next_number(self) -> int:
        """Of the batch that is decided next; while nothing is loaded."""
        return self._loaded - self._planner.window.lookahead

    def _draft(self, number: int) -> Callable[[], BatchPlan]:
        """Decide on a batch. Returns what gives its plan, which is written where no other threads write."""
        if isinstance(self._planner, DraftingPlanner) and self._planner.writing_threads:
            return self._planner.draft(number)
        plan = self._planner.plan(number)
        return lambda: plan

    def _load(self) -> None:
        self._planner.load(self._ring[self._loaded % len(self._ring)])
        self._loaded += 1

    def _timed(self, work: Callable[[], Result], *, loading: bool = False) -> tuple[Result, float]:
        """What the work gives, and its critical path in seconds: of the calling thread, and of those that help it."""
        start = self._path_s(loading=loading)
        return work(), self._path_s(loading=loading) - start

    def _path_s(self, *, loading: bool) -> float:
        if not isinstance(self._planner, NativePlanner):
            return time.thread_time()
        times = self._planner.times(loading=loading)
        return time.thread_time() - times.first_s + times.slowest_s


class _Clocks(NamedTuple):
    """Seconds at one moment, for differences; as the attributes of `Pace`."""

    elapsed: float
    processor: float

    @classmethod
    def read(cls) -> "_Clocks":
        return cls(time.perf_counter(), time.process_time())


def compare_paces(planners: Mapping[str, SteadyPlanner], batch_size: int, steps: int, runs: int) -> dict[str, Pace]:
    """Time planners in turn, so that a change of the machine's load meets them alike.

    Args:
        planners: by name.
        batch_size: samples of a batch.
        steps: batches of a run; made up to whole rounds.
        runs: runs of each planner.
    """
    paces = {name: Pace() for name in planners}
    for _ in range(runs):
        for name, planner in planners.items():
            counted = -(-steps // planner.round_batches) * planner.round_batches
            start = _Clocks.read()
            planner.run(counted)
            end = _Clocks.read()
            paces[name].elapsed.append(counted * batch_size / (end.elapsed - start.elapsed))
            paces[name].processor.append(counted * batch_size / (end.processor - start.processor))
            paces[name].critical.append(counted * batch_size / planner.critical_s(counted))
    return paces


def describe_plans(planner: SteadyPlanner) -> PlanFigures:
    """Mean figures of a round of plans."""
    look_ups: list[int] = []
    unique: list[int] = []
    fetched: list[int] = []
    sizes: list[int] = []

    def see(plan: BatchPlan) -> None:
        look_ups.append(sum(part.positions.size for part in plan.trainers))
        unique.append(plan.shared.unique_rows)
        fetched.append(plan.shared.fetched_rows)
        sizes.append(sum(part.nbytes for part in plan.encode()))

    planner.run(planner.round_batches, see)
    return PlanFigures(*(float(np.mean(figures)) for figures in (look_ups, unique, fetched, sizes)))
