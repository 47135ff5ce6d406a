"""Hotline's planner: hot rows stay with all trainers, the others come for one batch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bagpipe_hpc.planning.batch_rows import SEVERAL, Bools, Int64s, LoadedBatch, RowChoice
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.policies.hotline.hot_rows import HotRows
from bagpipe_hpc.planning.rule_planner import RulePlanner


class HotlinePlanner(RulePlanner):
    """Plans without look-ahead. Every sum is waited for, since the next batch reads the hot rows at once.

    Args:
        start: gives a new object that learns the hot rows of a segment.
        arguments: as for `RulePlanner`.
        settings: as for `RulePlanner`.
    """

    def __init__(self, start: Callable[[], HotRows], *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._start = start
        self._hot = start()
        self._demoted = np.empty(0, dtype=np.int64)

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """Forget the batches of earlier segments."""
        super().start_segment(training=training, first_step=first_step)
        self._hot = self._start()

    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:  # noqa: ARG002
        """Let rows that are not hot leave after the batch; among several trainers, rows of only one user are private.

        A single trainer has only shared slots, so that before rows are hot a batch can take the slots of hot rows.
        """
        self._demoted = self._hot.see(batch.rows)
        dead = self.is_dead(batch)
        private = dead & (batch.user != SEVERAL) & (self.trainers > 1)
        return RowChoice(dead=dead, private=private, now=np.ones_like(dead))

    def is_dead(self, batch: LoadedBatch) -> Bools:
        """Whether each row is not held after the batch, bool `[U]`."""
        dead: Bools = ~self._hot.held[batch.unique]
        return dead

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        """Rows that are no longer hot and that the batch does not use."""
        return self._demoted[~self.rows.are_in(self._demoted, batch.unique)]

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        size = super().size()
        hot_bytes = HotRows.state_bytes(self._hot.held.size)
        return PlannerSize(size.state_bytes + hot_bytes, size.window_bytes, size.shared_slots, size.private_slots)
