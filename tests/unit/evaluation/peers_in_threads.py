"""Trainers of an evaluation as threads of one process."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from bagpipe_hpc.evaluation.pairs import PairCounts

_Result = TypeVar("_Result")
_WAIT_S = 20.0


class ThreadPeer:
    """One of them."""

    def __init__(self, number: int, table: list[Any], barrier: threading.Barrier) -> None:
        self._number = number
        self._table = table
        self._barrier = barrier
        self.count = len(table)
        self.got = 0

    def all_of(self, value: Any) -> list[Any]:
        self._barrier.wait(_WAIT_S)
        self._table[self._number] = value
        self._barrier.wait(_WAIT_S)
        return list(self._table)

    def trade(self, parts: Sequence[PairCounts]) -> list[PairCounts]:
        assert len(parts) == self.count
        came = [given[self._number] for given in self.all_of(list(parts))]
        self.got += sum(part.keys.size for part in came)
        return came


def on_peers(count: int, work: Callable[[int, ThreadPeer], _Result]) -> list[_Result]:
    """What `work` gives on each of `count` peers, which run at the same time; it gets its number and its peer."""
    table, barrier = [None] * count, threading.Barrier(count)
    with ThreadPoolExecutor(count) as threads:
        running = [threads.submit(work, number, ThreadPeer(number, table, barrier)) for number in range(count)]
        return [one.result() for one in running]
