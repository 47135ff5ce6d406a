"""Planners with one broken rule each."""

from collections.abc import Sequence

import numpy as np

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import slice_bounds
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


class CutsBagsByCount(LookaheadPlanner):
    """Trainers get as many look-ups each, as if every bag had one row."""

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        super().load(rows, bounds)
        batch = self._loaded[-1]
        batch.starts = slice_bounds(batch.rows.size, self.trainers)


class UsersByCount(LookaheadPlanner):
    """Who uses a row is told from its place, as if every bag had one row."""

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        super().load(rows, bounds)
        even = self.rows.look_through(Bags(rows.values, 1), slice_bounds(rows.values.size, self.trainers))
        user_of = dict(zip(even.unique.tolist(), even.user.tolist(), strict=True))
        batch = self._loaded[-1]
        batch.user = np.asarray([user_of[row] for row in batch.unique.tolist()], dtype=np.int32)


class EachFeatureForItself(LookaheadPlanner):
    """Features that share a table have a slot each for the same row."""

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        super().load(rows, bounds)
        batch = self._loaded[-1]
        of_features = [np.unique(rows.values[rows.columns == feature]) for feature in range(rows.features)]
        user_of = dict(zip(batch.unique.tolist(), batch.user.tolist(), strict=True))
        batch.unique = np.concatenate(of_features)
        batch.user = np.asarray([user_of[row] for row in batch.unique.tolist()], dtype=np.int32)


class EachRowOfABagOnce(LookaheadPlanner):
    """A row that is in a bag several times is looked up once."""

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        bags = np.repeat(np.arange(rows.samples * rows.features), rows.lengths.reshape(-1))
        _, firsts = np.unique(np.stack((bags, rows.values)), axis=1, return_index=True)
        kept = np.sort(firsts)
        lengths = np.bincount(bags[kept], minlength=rows.samples * rows.features)
        super().load(Bags.ragged(rows.values[kept], lengths.reshape(-1, rows.features)), bounds)
