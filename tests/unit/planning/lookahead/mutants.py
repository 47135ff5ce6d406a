"""Planners with one broken rule each."""

import numpy as np

from bagpipe_hpc.planning.batch_rows import SEVERAL, Bools, Int32s, LoadedBatch, RowChoice
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner


class RetiresEarly(LookaheadPlanner):
    """Rows are retired with the group of the batch before."""

    def retiring_group(self, number: int) -> int:
        return self.window.group_that_retires(max(0, number - 1))


class WrongWriter(LookaheadPlanner):
    """The next trainer writes a private row back."""

    def writers(self, batch: LoadedBatch, choice: RowChoice) -> Int32s:
        return (super().writers(batch, choice) + 1) % self.trainers


class PrivateWithoutDeadTest(LookaheadPlanner):
    """A row that one trainer uses counts as private even if it is used again."""

    def is_private(self, dead: Bools, batch: LoadedBatch) -> Bools:  # noqa: ARG002
        return batch.user != SEVERAL


class NowFromTheBatchAfterNext(LookaheadPlanner):
    """`now` is computed from x + 2."""

    def note_loaded(self, number: int, batch: LoadedBatch) -> None:
        super().note_loaded(number, batch)
        batches = self.__dict__.setdefault("batches", {})
        batches[number] = batch

    def is_needed_now(self, batch: LoadedBatch, following: LoadedBatch | None, private: Bools) -> Bools:
        numbers = {id(loaded): number for number, loaded in self.batches.items()}
        after_next = self.batches.get(numbers[id(following)] + 1) if following is not None else None
        return super().is_needed_now(batch, after_next, private)


class KeepsNothing(LookaheadPlanner):
    """Every row is dead at once, though a later batch of the window counts on it."""

    def is_dead(self, number: int, batch: LoadedBatch) -> Bools:  # noqa: ARG002
        return np.ones(batch.unique.size, dtype=bool)
