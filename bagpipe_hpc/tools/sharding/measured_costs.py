"""Measures what groups of tables cost on this machine: rows of a batch are gathered and put back as servers do it.

Shapes: `U` different rows of a batch.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels.rows.row_copies import row_copies
from bagpipe_hpc.rows.access_statistics import AccessStatistics
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.tools.sharding.task import GroupCost

WARM_UPS, RUNS = 5, 10
DROPPED = 2
"""How many of the slowest runs, and of the fastest, do not count."""
_FLUSHED_BYTES = 32 << 20
"""Memory that is written between runs, more than processor caches hold."""


class ProcessorCaches:
    """Empties the processor's caches before a measurement."""

    def __init__(self) -> None:
        self._written = np.zeros(_FLUSHED_BYTES // 4, np.float32)

    def empty(self) -> None:
        """Write more than they hold."""
        self._written += 1


class MeasuredCosts:
    """Measures groups, each once: 5 runs to warm up and 10 that count, with caches emptied before each of these.

    Attributes:
        measured: groups that were measured.

    Args:
        tables: the tables.
        statistics: how often their rows are looked up; batches are drawn accordingly.
        batch_samples: samples of a batch.
        seed: seed for drawing the batches.
        most_bytes: memory for all tables; if they are larger, all are scaled down to it here.
        clock: gives seconds; by default this thread's processor time, which other programs hardly change.
    """

    def __init__(
        self,
        tables: Sequence[WholeTable],
        statistics: AccessStatistics,
        batch_samples: int,
        seed: int,
        most_bytes: int,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._caches = ProcessorCaches()
        share = min(1.0, most_bytes / sum(table.bytes for table in tables))
        self._clock, self._copies = clock, row_copies("auto")
        self.measured = 0
        self._found: dict[frozenset[int], GroupCost] = {}
        self._tables: list[NDArray[np.float32]] = []
        self._rows: list[list[NDArray[np.int64]]] = []
        hottest = statistics.hottest(table.name for table in tables)
        for number, (table, (rows, counts)) in enumerate(zip(tables, hottest, strict=True)):
            kept = max(1, int(table.rows * share))
            random = np.random.default_rng([seed, number])
            self._tables.append(np.ones((kept, table.row_bytes // 4), np.float32))
            look_ups = round(batch_samples * statistics.of(table.name, table.rows).sample_look_ups)
            below = np.cumsum(counts)
            batches = WARM_UPS + RUNS if look_ups else 0
            self._rows.append([_drawn(rows, below, look_ups, kept, random) for _ in range(batches)])

    def forget(self) -> None:
        """Measure groups anew when they are asked for again."""
        self._found = {}

    def cost(self, group: Sequence[int]) -> GroupCost:
        """What a batch of the rows of these tables costs."""
        tables = frozenset(group)
        if tables not in self._found:
            self._found[tables] = self._measure(sorted(tables))
            self.measured += 1
        return self._found[tables]

    def _measure(self, group: Sequence[int]) -> GroupCost:
        used = [table for table in group if self._rows[table]]
        if not used:
            return GroupCost(0.0, 0.0)
        times = np.array([self._run(used, number) for number in range(WARM_UPS + RUNS)])[WARM_UPS:]
        forward_s, backward_s = np.sort(times, axis=0)[DROPPED:-DROPPED].mean(axis=0).tolist()
        return GroupCost(1e3 * forward_s, 1e3 * backward_s)

    def _run(self, tables: Sequence[int], number: int) -> tuple[float, float]:
        """Seconds to gather the rows of a batch, and to put them back."""
        rows = [self._rows[table][number] for table in tables]
        records = [
            np.empty((len(own), self._tables[t].shape[1]), np.float32) for t, own in zip(tables, rows, strict=True)
        ]
        if number >= WARM_UPS:
            self._caches.empty()
        begun = self._clock()
        for table, own, into in zip(tables, rows, records, strict=True):
            self._copies.gather(self._tables[table], own, into)
        gathered = self._clock()
        for table, own, into in zip(tables, rows, records, strict=True):
            self._copies.scatter(self._tables[table], own, into)
        return gathered - begun, self._clock() - gathered


def _drawn(
    rows: NDArray[np.int64], below: NDArray[np.int64], look_ups: int, kept: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Distinct rows, int64 `[U]`, of `look_ups` draws weighted by the rows' counts; `below`: cumulative counts."""
    drawn = rows[np.searchsorted(below, random.integers(0, below[-1], look_ups), side="right")]
    return np.unique(drawn % kept)
