"""Rows as arithmetic progressions: how the rows of a server, or of a file, are told in a few numbers. Pure."""

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.partition import RowPartition

MOST_RUNS = 4096
"""Rows that make more runs are listed one by one: each run takes some microseconds to go through."""

_ROWS_AT_ONCE = 1 << 20


class RowRun(NamedTuple):
    """Global rows `first`, `first + stride`, ...: `length` of them, at least one; `stride` is at least 1."""

    first: int
    stride: int
    length: int

    @property
    def last(self) -> int:
        """The last of the rows."""
        return self.first + (self.length - 1) * self.stride

    def rows(self, first: int, last: int) -> NDArray[np.int64]:
        """Number `first` up to `last` of the rows, int64 `[last - first]`."""
        return self.first + np.arange(first, last, dtype=np.int64) * self.stride


class Overlap(NamedTuple):
    """The rows that two runs have in common: every `steps[i]`-th of run i from its number `firsts[i]` on."""

    firsts: tuple[int, int]
    steps: tuple[int, int]
    length: int


def overlap(one: RowRun, other: RowRun) -> Overlap | None:
    """What two runs have in common, by the Chinese remainder theorem; None for nothing."""
    common = gcd(one.stride, other.stride)
    ahead, remainder = divmod(other.first - one.first, common)
    if remainder:
        return None
    steps = other.stride // common, one.stride // common
    number = ahead * pow(one.stride // common, -1, steps[0]) % steps[0]
    period = one.stride * steps[0]
    row = one.first + number * one.stride  # of `one`, and of `other` unless that begins later
    row += -(-max(0, other.first - row) // period) * period
    last = min(one.last, other.last)
    if row > last:
        return None
    firsts = (row - one.first) // one.stride, (row - other.first) // other.stride
    return Overlap(firsts, steps, (last - row) // period + 1)


def runs_of(partition: RowPartition, server: int, most: int = MOST_RUNS) -> list[RowRun] | None:
    """The rows of a server in the order of their positions, as few runs; None where it takes more than `most`."""
    runs: list[RowRun] = []
    held = partition.rows_on(server)
    for first in range(0, held, _ROWS_AT_ONCE):
        for run in _runs(partition.rows_of(server, first, min(first + _ROWS_AT_ONCE, held)), most):
            joined = _joined(runs[-1], run) if runs else None
            if joined:
                runs[-1] = joined
            else:
                runs.append(run)
            if len(runs) > most:
                return None
    return runs


def _runs(rows: NDArray[np.int64], most: int) -> list[RowRun]:
    """Rows in their order as runs, each as long as it can be; those after `most + 2` are left out."""
    steps = np.diff(rows)
    changes = [*(np.flatnonzero(steps[1:] != steps[:-1]) + 1).tolist(), len(rows) - 1]
    runs: list[RowRun] = []
    start, change = 0, 0
    while start < len(rows) and len(runs) < most + 2:
        while changes[change] <= start and change < len(changes) - 1:
            change += 1
        stride = int(steps[start]) if start < len(steps) else 1
        end = changes[change] if stride > 0 else start
        runs.append(RowRun(int(rows[start]), stride if end > start else 1, end - start + 1))
        start = end + 1
    return runs


def _joined(one: RowRun, other: RowRun) -> RowRun | None:
    """Two runs as one, where the second goes on as the first; a run of one row has any stride."""
    stride = other.first - one.last
    fits = all(run.length == 1 or run.stride == stride for run in (one, other))
    return RowRun(one.first, stride, one.length + other.length) if stride > 0 and fits else None


def rows_at(partition: RowPartition, server: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The global rows at `positions [n]`, ascending, of a server's window."""
    rows = np.empty(positions.size, dtype=np.int64)
    held, first = partition.rows_on(server), 0
    while first < positions.size:
        start = int(positions[first])
        last = int(np.searchsorted(positions, start + _ROWS_AT_ONCE))
        rows[first:last] = partition.rows_of(server, start, min(start + _ROWS_AT_ONCE, held))[
            positions[first:last] - start
        ]
        first = last
    return rows


def numbers_of(runs: Sequence[RowRun], first: int, last: int) -> NDArray[np.int64]:
    """Number `first` up to `last` of the rows of all `runs`, one after the other, int64 `[last - first]`."""
    parts, before = [np.empty(0, dtype=np.int64)], 0
    for run in runs:
        begin, end = max(first - before, 0), min(last - before, run.length)
        if begin < end:
            parts.append(run.rows(begin, end))
        before += run.length
    return np.concatenate(parts)
