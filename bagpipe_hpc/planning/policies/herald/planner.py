"""Herald's rules: a row is held by a trainer that used it last, and sent only when another trainer reads it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.planning.batch_rows import NO_ROWS, Bools, Int64s, LoadedBatch, RetiredByGroup, RetiredRows, RowChoice
from bagpipe_hpc.planning.homes.planner import ExchangePlanner
from bagpipe_hpc.planning.homes.slots import HomeSlots, Placed, UsedBatch
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.policies.herald.held_rows import HeldRows


class HeraldSlots(HomeSlots):
    """One area for copies: those for a batch come only once the batch before has ended."""

    areas = 1


class HeraldPlanner(ExchangePlanner):
    """Plans on-demand synchronisation. A row's home is its holder (`HeldRows`), so homes move.

    Its window is serial: all that a batch changed is in place before the next batch's rows are fetched. With a window
    of one batch it is not known who reads a row next, so every row leaves.

    Args:
        arguments: as for `ExchangePlanner`.
        held: the rows that trainers hold; empty at first.
        on_demand: true: rows are written back when they leave; false: after every update.
        settings: as for `ExchangePlanner`.
    """

    slots_kind = HeraldSlots

    def __init__(self, *arguments: Any, held: HeldRows, on_demand: bool = True, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.held = held
        self._on_demand = on_demand
        self._is_taken = False  # whether `held` has taken in the next batch
        self._leaving = NO_ROWS

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        """The home of a fetched row is the trainer that is to hold it."""
        if not self._is_taken:
            self._take(batch)
        return self.held.holders(batch.unique[fetched])

    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:  # noqa: ARG002
        """Let rows leave that another trainer is to hold in the next batch, or for which there is no room then."""
        of_all = np.ones(batch.unique.size, dtype=np.bool_)
        self._is_taken = following is not None
        if following is None:  # the last batch of a segment, or a window of one: the next readers are not known
            self.held.clear()
            self._leaving = NO_ROWS
            return RowChoice(dead=of_all, private=~of_all, now=of_all)
        leaving = self._take(following)
        dead = self.rows.are_in(batch.unique, leaving)
        self._leaving = leaving[~self.rows.are_in(leaving, batch.unique)]
        return RowChoice(dead, private=~of_all, now=of_all)

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        """Rows that leave and that the batch does not use."""
        return self._leaving

    def written(self, number: int, batch: UsedBatch, placed: Placed, retired: RetiredByGroup) -> RetiredByGroup:
        """Rows that leave; without `on_demand`, all that the batch has updated."""
        if self._on_demand:
            return retired
        updated = RetiredRows([batch.unique.astype(np.int64)], [placed.slots], [placed.homes])
        return {self.retiring_group(number): updated}

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        size = super().size()
        state = size.state_bytes + self.held.nbytes
        return PlannerSize(state, size.window_bytes, size.shared_slots, size.private_slots)

    def _take(self, batch: LoadedBatch) -> Int64s:
        return self.held.take(batch.rows, np.repeat(np.arange(self.trainers), np.diff(batch.starts)))
