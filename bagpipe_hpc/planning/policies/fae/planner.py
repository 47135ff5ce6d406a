"""What happens to rows in blocks of hot and of cold batches."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.batch_plan import NO_GROUP
from bagpipe_hpc.planning.batch_rows import NO_ROWS, SEVERAL, Int64s, LoadedBatch, RowChoice
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.rule_planner import RulePlanner
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window

WINDOW = Window(2, 1, serial=True)
"""The window of FAE: one batch is read ahead, to see whether a block of hot batches ends."""


class HotBlockPlanner(RulePlanner):
    """Hot rows stay with every trainer through a block of hot batches; rows of a cold batch leave at once.

    A batch is hot if all its rows are. A block is a run of hot batches in a segment. A row of a block is fetched for
    the first batch that uses it, after the write-backs of all batches before the block, and written back after the last
    batch of the block. A cold batch fetches its rows after the write-backs of all batches before it.

    Args:
        is_hot: whether each row is hot, bool `[rows]`.
        trainers: number of trainers T.
        shared_capacity: as for `RulePlanner`.
        private_capacity: as for `RulePlanner`.
        verify: as for `RulePlanner`.
        feature_tables: as for `RulePlanner`.
        any_block: while slots are measured, assume that a block uses all hot rows: later blocks may differ.
    """

    def __init__(
        self,
        is_hot: NDArray[np.bool_],
        trainers: int,
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
        *,
        verify: bool = False,
        feature_tables: Sequence[int] = (),
        any_block: bool = False,
    ) -> None:
        super().__init__(
            is_hot.size,
            trainers,
            WINDOW,
            shared_capacity,
            private_capacity,
            verify=verify,
            feature_tables=feature_tables,
        )
        self._is_hot = is_hot
        self._least_slots = int(is_hot.sum()) if any_block and shared_capacity == UNLIMITED else 0
        self._goes_on = self._ends = False

    def is_hot(self, batch: LoadedBatch) -> bool:
        """Whether a batch has hot rows alone."""
        return bool(self._is_hot[batch.unique].all())

    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:  # noqa: ARG002
        """Keep the rows of a hot batch while its block goes on; write those of other batches back."""
        is_hot = self.is_hot(batch)
        self._goes_on = is_hot and following is not None and self.is_hot(following)
        self._ends = is_hot and not self._goes_on
        dead = np.full(batch.unique.size, not self._goes_on)
        private = (batch.user != SEVERAL) & (not is_hot)
        return RowChoice(dead, private, now=~private)

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        """When a block ends, all rows that are still in the caches."""
        return self.rows.resident if self._ends else NO_ROWS

    def prefetch_after(self, number: int) -> int:
        """The group of the batch before; none within a block, whose first batch has waited for it."""
        return NO_GROUP if self._goes_on else super().prefetch_after(number)

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        size = super().size()
        return PlannerSize(
            size.state_bytes + self._is_hot.nbytes,
            size.window_bytes,
            max(size.shared_slots, self._least_slots),
            size.private_slots,
        )
