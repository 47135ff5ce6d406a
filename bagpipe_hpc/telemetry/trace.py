"""A timeline of what each rank does, in the trace event format that chrome://tracing and ui.perfetto.dev show.

Each rank collects spans in memory; at the end of the run they become one file (`save_trace`). Times count from
a moment that all ranks share (they leave a barrier together), so clocks of different hosts need not agree.
Sums of their times, and what is under way now, are kept with or without a timeline.
"""

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.output_errors import writing

log = logging.getLogger(__name__)

MOST_SPANS = 200_000
"""Spans that a rank keeps, about 50 MB; later ones are counted only."""
_UnderWay = tuple[str, float]
"""A span that has begun: its name, and when."""


class Trace:
    """The spans of one rank; safe to use from several threads.

    Args:
        enabled: whether spans are kept; false keeps the sums of their times alone.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.dropped = 0
        self._zero_s = time.perf_counter()
        self._spans: list[tuple[str, str, float, float, dict[str, int]]] = []
        self._sums_s: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()  # the compute thread and the mover add up
        self._under_way: dict[int, _UnderWay] = {}
        self.step = 0
        """Training steps that this rank has done, where it counts them."""
        self.values: dict[str, float] = {}
        """What it has measured last, by name."""

    def under_way(self) -> tuple[list[str], float]:
        """The innermost span of each thread that has one, the longest first, and for how many seconds that one runs."""
        with self._lock:
            spans = sorted(self._under_way.values(), key=lambda span: span[1])
        return [name for name, _ in spans], time.perf_counter() - spans[0][1] if spans else 0.0

    def sums_s(self) -> dict[str, float]:
        """Seconds of all spans so far by their names; spans of several threads may overlap in time."""
        with self._lock:
            return dict(self._sums_s)

    def start(self) -> None:
        """Take the present moment as zero; call it when all ranks have just left a barrier."""
        self._zero_s = time.perf_counter()

    def span(self, name: str, **numbers: int) -> AbstractContextManager[None]:
        """Record the time of the body, with a few numbers that say what it worked on."""
        return _Span(self, name, numbers)

    def add(self, name: str, start_s: float, end_s: float, track: str, **numbers: int) -> None:
        """Record what is known to have run between two values of `time.perf_counter`.

        Args:
            name: what was done.
            start_s: when it started.
            end_s: when it ended.
            track: the line that it is drawn on.
            numbers: what it worked on.
        """
        with self._lock:
            self._sums_s[name] += end_s - start_s
        if self.enabled:
            self._keep(name, track, start_s, end_s, numbers)

    def _keep(self, name: str, track: str, start_s: float, end_s: float, numbers: dict[str, int]) -> None:
        if len(self._spans) >= MOST_SPANS:
            self.dropped += 1
            return
        self._spans.append((name, track, start_s, end_s, numbers))

    def events(self, rank: int, rank_name: str) -> list[dict[str, Any]]:
        """The spans as trace events: a process for the rank, a thread for each track, times in microseconds."""
        tracks = sorted({track for _, track, *_ in self._spans}, key=lambda track: (track != "MainThread", track))
        numbers = {track: number for number, track in enumerate(tracks)}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": rank_name}},
            {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}},
        ]
        for track, number in numbers.items():
            label = "compute" if track == "MainThread" else track
            events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": label}})
        for name, track, start_s, end_s, args in self._spans:
            events.append(
                {
                    "ph": "X",
                    "name": name,
                    "pid": rank,
                    "tid": numbers[track],
                    "ts": round((start_s - self._zero_s) * 1e6, 1),
                    "dur": round((end_s - start_s) * 1e6, 1),
                    "args": args,
                }
            )
        return events


class _Span:
    """The body of a `with` statement as a span of the calling thread."""

    __slots__ = ("_name", "_numbers", "_outer", "_start_s", "_thread", "_trace")

    def __init__(self, trace: Trace, name: str, numbers: dict[str, int]) -> None:
        self._trace, self._name, self._numbers = trace, name, numbers

    def __enter__(self) -> None:
        trace = self._trace
        self._thread, self._start_s = threading.get_ident(), time.perf_counter()
        with trace._lock:
            self._outer = trace._under_way.get(self._thread)
            trace._under_way[self._thread] = self._name, self._start_s

    def __exit__(self, *_: object) -> None:
        trace, end_s = self._trace, time.perf_counter()
        with trace._lock:
            if self._outer is None:
                del trace._under_way[self._thread]
            else:
                trace._under_way[self._thread] = self._outer
            trace._sums_s[self._name] += end_s - self._start_s
        if trace.enabled:
            trace._keep(self._name, threading.current_thread().name, self._start_s, end_s, self._numbers)


def save_trace(path: Path, comms: Communicators, trace: Trace) -> None:
    """Write the timelines of all ranks as one file. Collective over: all ranks, which have just left a barrier.

    Raises:
        OutputError: on the oracle: the file cannot be written.
    """
    if trace.dropped:
        log.warning("train.trace: the last %d spans of this rank are not in the timeline", trace.dropped)
    own = trace.events(comms.world.Get_rank(), f"{comms.role.value} {comms.role_rank}")
    with TimeLimit("all ranks to send their timelines", comms.timeout_s):
        ranks = comms.world.gather(own, root=0)
    if ranks is not None:
        write_trace(path, ranks)
        log.info("timeline: %s", path)


def write_trace(path: Path, ranks: Iterable[list[dict[str, Any]]]) -> None:
    """Write trace events, whole or not at all.

    Args:
        path: the file; folders above it are made, an earlier file is replaced.
        ranks: the events of each rank, as `Trace.events` gives them.

    Raises:
        OutputError: it cannot be written.
    """
    content = {"displayTimeUnit": "ms", "traceEvents": [event for events in ranks for event in events]}
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")
