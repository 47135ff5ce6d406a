"""HET's rules: rows that several trainers hold and change, pulled and added as late as the bound allows.

Batch x, on every trainer: look up all rows of the slice; pull those that are not held, and those for which the servers
have more than s updates that this trainer has not seen; update; add the changes of rows with more than s unsent
updates, and of rows that leave. All look-ups of a batch come before its additions, and these before the next batch.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import NO_GROUP, BatchPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.batch_rows import NO_ROWS, NO_SLOTS, Int32s, Int64s, distinct
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.policies.het.settings import HetSettings
from bagpipe_hpc.planning.policies.het.trainer_cache import TrainerCache
from bagpipe_hpc.planning.slots import UNLIMITED, SlotPool, first_private_slot
from bagpipe_hpc.planning.sound_rows import require_rows_of_tables
from bagpipe_hpc.planning.window import Window

_NOTHING = TrainerPlan(NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS)
SLOTS_A_ROW = 2
"""The row's own slot and that of its base."""


def state_bytes(total_rows: int, trainers: int) -> int:
    """Bytes of the per-row state: a line for each trainer, the clock at the servers, and a scratch number."""
    return 4 * total_rows * (trainers + 2)


class HetPlanner:
    """Keeps the `Planner` protocol for HET; each batch is planned alone.

    Args:
        total_rows: rows of all tables.
        trainers: number of trainers.
        window: a window of one batch.
        shared_capacity: slots before those of the rows; none is used.
        private_capacity: slots of each trainer.
        settings: the policy's settings.
        most_held: rows that a trainer may hold between two batches; None for any number.
    """

    loads_beside = False
    """As `Planner.loads_beside`."""
    cache_kind = TrainerCache
    """The class that tracks a trainer's cache."""

    def __init__(
        self,
        total_rows: int,
        trainers: int,
        window: Window,
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
        *,
        settings: HetSettings,
        most_held: int | None = None,
    ) -> None:
        self.window = window
        self._first_slot = first_private_slot(shared_capacity)
        self._most_held = most_held
        self._clocks = np.zeros(total_rows, dtype=np.int32)
        self._scratch = np.empty(total_rows, dtype=np.int32)
        capacity = UNLIMITED if private_capacity == UNLIMITED else private_capacity // SLOTS_A_ROW
        self._pools = [SlotPool(f"private (trainer {trainer}, pairs)", capacity) for trainer in range(trainers)]
        self.caches = [
            self.cache_kind(total_rows, pool, settings.staleness, settings.eviction, settings.pin_after)
            for pool in self._pools
        ]
        self._loaded: deque[list[Bags]] = deque()
        self._count = self._window_bytes = 0
        self._training = True

    def start_segment(self, *, training: bool, first_step: int) -> None:  # noqa: ARG002
        """Forget the batches of earlier segments; no row is resident now, and all updates are at the servers."""
        self._training = training
        self._loaded.clear()
        self._count = 0
        self._clocks.fill(0)

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        """Take the next batch into the window.

        Raises:
            DataError: a row lies outside the tables.
        """
        require_rows_of_tables(rows, self._clocks.size)
        bounds = slice_bounds(rows.samples, len(self.caches)) if bounds is None else bounds
        self._loaded.append([rows.part(first, last) for first, last in pairwise(bounds)])
        self._count += 1
        taken = rows.nbytes + sum(cache.nbytes for cache in self.caches)
        self._window_bytes = max(self._window_bytes, taken)

    def decide(self, number: int) -> None:
        """As `Planner.decide`."""
        self.plan(number)

    def plan(self, number: int) -> BatchPlan:
        """Decide on a batch, and write the decision down."""
        parts = self._loaded.popleft()
        looked_up = [self._look_through(part.values) for part in parts]
        # All trainers pull before any adds.
        reads = [
            cache.read(number, rows, self._clocks) for cache, (rows, _) in zip(self.caches, looked_up, strict=True)
        ]
        plans, pulled_rows = [], []
        for cache, (rows, positions), read in zip(self.caches, looked_up, reads, strict=True):
            pulled = np.concatenate((np.flatnonzero(read.is_new), np.flatnonzero(read.is_stale)))
            pulled_rows.append(rows[pulled])
            added = cache.update(read.lines) if self._training else NO_SLOTS
            leaving = NO_ROWS if self._most_held is None else cache.choose_leaving(number, self._most_held)
            added = np.union1d(added, leaving[cache.has_unsent(leaving)])
            plans.append(
                TrainerPlan(
                    positions=positions,
                    private_slots=self._slots(read.lines),
                    fetch_rows=rows[pulled],
                    fetch_slots=self._bases(read.lines[pulled]),
                    write_back_rows=NO_ROWS,
                    write_back_slots=NO_SLOTS,
                    rows=NO_ROWS,
                    versions=NO_SLOTS,
                    **self._additions(cache, added),
                    new_slots=self._slots(read.lines[read.is_new]),
                    merged_slots=self._slots(read.lines[read.is_stale]),
                )
            )
            cache.leave(leaving)
        unique = distinct(np.concatenate([rows for rows, _ in looked_up])).size
        samples = sum(part.samples for part in parts)
        fetched = distinct(np.concatenate(pulled_rows)).size
        return BatchPlan(self._shared(number, samples, number, number + 1, unique, fetched), tuple(plans))

    def closing_plan(self) -> BatchPlan:
        """Add all that is unsent, and let everything go."""
        plans = []
        for cache in self.caches:
            plans.append(replace(_NOTHING, **self._additions(cache, cache.unsent_lines())))
            cache.clear()
        group = self._count + 1 if self._count else NO_GROUP
        return BatchPlan(self._shared(self._count, 0, NO_GROUP, group, 0, 0), tuple(plans))

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        slots = SLOTS_A_ROW * max(pool.peak for pool in self._pools)
        return PlannerSize(state_bytes(self._clocks.size, len(self.caches)), self._window_bytes, 0, slots)

    def _look_through(self, values: Int64s) -> tuple[Int64s, Int32s]:
        """The distinct rows of look-ups, and for each look-up the index of its row among these."""
        rows = distinct(values)
        self._scratch[rows] = np.arange(rows.size, dtype=np.int32)
        return rows, self._scratch[values]

    def _additions(self, cache: TrainerCache, lines: NDArray[np.integer]) -> dict[str, Any]:
        """The fields of a plan for what a trainer adds: all that is unsent in these lines; none in an evaluation."""
        if not self._training:
            return {}
        slots, bases = self._slots(lines), self._bases(lines)
        return {"add_rows": cache.add(lines, self._clocks), "add_slots": slots, "base_slots": bases}

    def _slots(self, lines: NDArray[np.integer]) -> Int32s:
        return (self._first_slot + SLOTS_A_ROW * lines).astype(np.int32)

    def _bases(self, lines: NDArray[np.integer]) -> Int32s:
        return self._slots(lines) + np.int32(1)

    def _shared(self, batch: int, samples: int, after: int, retire: int, unique: int, fetched: int) -> SharedPlan:
        nothing = NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS
        return SharedPlan(batch, samples, after, retire, unique, fetched, *nothing)
