"""The look-ahead rules (BagPipe, SOSP 2023, section 3) in NumPy: what faster planners are tested against.

A row is kept as long as a later batch of the window uses it. State is three int32 numbers a table row: the newest
loaded batch that uses it, and those of `RowSlots`.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from bagpipe_hpc.planning.batch_rows import SEVERAL, Bools, LoadedBatch, RowChoice
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.rule_planner import RulePlanner


class LookaheadPlanner(RulePlanner):
    """The reference implementation of the look-ahead policy; the arguments are those of `RulePlanner`.

    Each rule is a method of its own, so that a test can break one at a time.
    """

    def __init__(self, total_rows: int, *arguments: Any, **settings: Any) -> None:
        super().__init__(total_rows, *arguments, **settings)
        self._last_use = np.full(total_rows, -1, dtype=np.int32)

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """Forget the batches of earlier segments, and the uses of their rows."""
        super().start_segment(training=training, first_step=first_step)
        self._last_use.fill(-1)

    def note_loaded(self, number: int, batch: LoadedBatch) -> None:
        """Note the newest use of the batch's rows."""
        self._last_use[batch.unique] = number

    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:
        """Apply the rules to a batch."""
        dead = self.is_dead(number, batch)
        private = self.is_private(dead, batch)
        return RowChoice(dead, private, self.is_needed_now(batch, following, private))

    def latest_prefetch_after(self, number: int) -> int:
        """Fetches may come late: the window says how late."""
        return self.window.latest_before_prefetch(number)

    def is_dead(self, number: int, batch: LoadedBatch) -> Bools:
        """Rows that no later batch of the window uses."""
        dead: Bools = self._last_use[batch.unique] == number
        return dead

    def is_private(self, dead: Bools, batch: LoadedBatch) -> Bools:
        """Rows that one trainer updates and writes back alone: dead, and used by a single trainer."""
        private: Bools = dead & (batch.user != SEVERAL)
        return private

    def is_needed_now(self, batch: LoadedBatch, following: LoadedBatch | None, private: Bools) -> Bools:
        """Rows whose update the next batch reads. Without look-ahead the next batch is unknown: all shared rows."""
        if self.window.delays_nothing:
            return ~private
        if following is None:
            return np.zeros(batch.unique.size, dtype=np.bool_)
        return self.rows.are_in(batch.unique, following.unique)

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        size = super().size()
        return replace(size, state_bytes=size.state_bytes + self._last_use.nbytes)
