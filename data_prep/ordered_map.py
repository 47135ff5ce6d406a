"""A parallel map that keeps order and never runs far ahead of its reader."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 16


def worker_threads() -> int:
    """Threads worth starting: the cores that this process may use (a batch system may limit them), at most 16."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


def fair_threads(cores: Sequence[frozenset[int]], own: int) -> int:
    """Threads for one of several processes of a host: its share of the cores that it may use, 1 to 16.

    Args:
        cores: the cores that each process may use; bound processes have cores of their own, others share all.
        own: index of the process.
    """
    users = Counter(core for allowed in cores for core in allowed)
    share = sum(Fraction(1, users[core]) for core in cores[own])
    return max(1, min(_MOST_THREADS, int(share)))


def ordered_map(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Apply a function in other threads and give the results in the order of the items.

    `Executor.map` would take all items at once; here memory is bounded by `ahead` items and their results.

    Args:
        pool: threads to use.
        function: applied to each item; what it raises is raised here, in order.
        items: taken one by one, in this thread.
        ahead: most items that are being worked on or wait for the reader, 1 or more.
    """
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
