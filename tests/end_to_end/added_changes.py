"""A policy in the way of parameter servers: every trainer fetches its own rows of each batch and adds their changes."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import NO_GROUP, BatchPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.policy import Policy
from bagpipe_hpc.planning.slots import UNLIMITED, first_private_slot
from bagpipe_hpc.planning.window import Window

NO_ROWS, NO_SLOTS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)


class AddedChanges(Policy):
    adds_rows = True

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        return Window(1, 1)

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> "EveryRowPrivate":  # noqa: ARG002
        return EveryRowPrivate(self.facts.trainers, window, first_private_slot(shared))


class EveryRowPrivate:
    """Trainer t has row k of its slice's in private slot k, and behind all of them once more as it was fetched."""

    loads_beside = False

    def __init__(self, trainers: int, window: Window, first_slot: int) -> None:
        self.window, self._trainers, self._first_slot = window, trainers, first_slot
        self._loaded: deque[list[Bags]] = deque()
        self._count = self._slots = 0

    def start_segment(self, *, training: bool, first_step: int) -> None:  # noqa: ARG002
        self._training, self._count = training, 0

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        slices = pairwise(bounds or slice_bounds(rows.samples, self._trainers))
        self._loaded.append([rows.part(first, last) for first, last in slices])
        self._count += 1

    def decide(self, number: int) -> None:
        self.plan(number)

    def plan(self, number: int) -> BatchPlan:
        parts = self._loaded.popleft()
        unique = np.unique(np.concatenate([part.values for part in parts])).size
        shared = self._shared(number, sum(part.samples for part in parts), number, number + 1, unique)
        return BatchPlan(shared, tuple(map(self._part, parts)))

    def _part(self, looked_up: Bags) -> TrainerPlan:
        rows, positions = np.unique(looked_up.values, return_inverse=True)
        slots = np.arange(self._first_slot, self._first_slot + 2 * rows.size, dtype=np.int32)
        self._slots = max(self._slots, slots.size)
        own, bases = np.split(slots, 2)
        rows = rows.astype(np.int64)
        added = {"add_rows": rows, "add_slots": own, "base_slots": bases} if self._training else {}
        nothing = NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS
        return TrainerPlan(positions.astype(np.int32), own, rows, bases, *nothing, **added, new_slots=own)

    def closing_plan(self) -> BatchPlan:
        nothing = TrainerPlan(NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS)
        return BatchPlan(self._shared(self._count, 0, NO_GROUP, NO_GROUP, 0), (nothing,) * self._trainers)

    def _shared(self, batch: int, samples: int, after: int, retire: int, unique: int) -> SharedPlan:
        slots, fetched, verified = (NO_SLOTS, NO_SLOTS), (NO_ROWS, NO_SLOTS), (NO_ROWS, NO_SLOTS)
        return SharedPlan(batch, samples, after, retire, unique, unique, *slots, *fetched, *verified)

    def size(self) -> PlannerSize:
        return PlannerSize(0, 0, 0, self._slots)
