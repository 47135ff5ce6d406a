"""A parallel map that keeps order and never runs far ahead of its reader."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 16


def worker_threads() -> int:
    """Threads worth starting: the cores that this process may use (a batch system gives it few of many), at most 16."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


def ordered_map(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Apply a function in other threads and give the results in the order of the items.

    `Executor.map` would take all items at once; here memory is bounded by `ahead` items and their results.

    Args:
        pool: threads to use.
        function: applied to each item; what it raises is raised here, in order.
        items: taken one by one, in this thread.
        ahead: most items that are worked on or wait for the reader, 1 or more.
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
