"""Planners of rows with one home, with one broken rule each."""

from typing import Any

import numpy as np

from bagpipe_hpc.planning.batch_rows import Bools, LoadedBatch
from bagpipe_hpc.planning.homes.slots import HomeSlots, UsedBatch
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner


class NowFromTheBatchAfterNext(HomePlanner):
    """What the batch after next uses is summed now; the next one's rows later."""

    def is_needed_now(self, batch: LoadedBatch, following: LoadedBatch | None, private: Bools) -> Bools:  # noqa: ARG002
        after = self._loaded[1] if len(self._loaded) > 1 else None
        return super().is_needed_now(batch, after, private)


class CopiesNothingNow(HomePlanner):
    """All copies for the next batch leave as the rest does, before the update of what this one uses."""

    def copied_now(self, batch: UsedBatch, following: LoadedBatch | None) -> Bools | None:  # noqa: ARG002
        return None


class RetiresEarly(HomePlanner):
    """Rows are retired with the group of the batch before."""

    def retiring_group(self, number: int) -> int:
        return self.window.group_that_retires(max(0, number - 1))


class SumsItsOwnAlone(HomePlanner):
    """A home sums the gradients of its own slice, and drops those of others."""

    def _sums(self, batch: UsedBatch, placed: Any, pairs: Bools) -> Any:
        own = placed.homes[batch.pair_rows] == batch.pair_users
        return super()._sums(batch, placed, pairs & own)


class OneAreaOfCopies(HomeSlots):
    """Copies of two batches lie in the same slots."""

    def first_copy(self, number: int) -> int:  # noqa: ARG002
        return 0


class CopiesInOneArea(HomePlanner):
    """Copies for the next batch overwrite those that this one reads."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.rows.__class__ = OneAreaOfCopies


class SendsByTrainer(HomePlanner):
    """Over a grid, rows lie in the order of the trainers that they are for, as if they were sent directly."""

    def sending_places(self) -> np.ndarray:
        return np.arange(self.trainers)


MUTANTS = [NowFromTheBatchAfterNext, CopiesNothingNow, RetiresEarly, SumsItsOwnAlone, CopiesInOneArea, SendsByTrainer]
