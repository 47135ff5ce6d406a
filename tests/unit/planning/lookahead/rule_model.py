"""The look-ahead rules as sets, without state: what a plan must say is read off the whole trace.

A row that is absent at batch x was not used in the L - 1 batches before it; a row that dies with x is not used in the
L - 1 batches behind it. Everything else follows.
"""

from dataclasses import dataclass
from functools import cached_property

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import slice_bounds


@dataclass(frozen=True)
class Rules:
    """The rules for one trace.

    Attributes:
        batches: global rows of each batch.
        trainers: number of trainers T.
        lookahead: window L.
        group: clean-up group C.
    """

    batches: list[Bags]
    trainers: int
    lookahead: int
    group: int

    def uses(self, first: int, last: int) -> set[int]:
        """Rows that batches `first` up to `last` use; there are none before the first batch and behind the last."""
        return {row for batch in self.batches[max(0, first) : max(0, last)] for row in batch.values.tolist()}

    def users(self, x: int, row: int) -> set[int]:
        """Trainers whose slice of batch x uses the row."""
        return self._users[x].get(row, set())

    @cached_property
    def _users(self) -> list[dict[int, set[int]]]:
        """Of each batch, the trainers that use each of its rows."""
        of_batches: list[dict[int, set[int]]] = []
        for batch in self.batches:
            of_batches.append({})
            bounds = slice_bounds(batch.samples, self.trainers)
            for trainer in range(self.trainers):
                for row in batch.part(bounds[trainer], bounds[trainer + 1]).values.tolist():
                    of_batches[-1].setdefault(row, set()).add(trainer)
        return of_batches

    def fetched(self, x: int) -> set[int]:
        """Absent rows."""
        return self.uses(x, x + 1) - self.uses(x - self.lookahead + 1, x)

    def dead(self, x: int) -> set[int]:
        """Rows that are retired after x."""
        return self.uses(x, x + 1) - self.uses(x + 1, x + self.lookahead)

    def private(self, x: int, trainer: int) -> set[int]:
        """Dead rows that this trainer alone uses."""
        return {row for row in self.dead(x) if self.users(x, row) == {trainer}}

    def shared(self, x: int) -> set[int]:
        """Rows whose gradients are summed over the trainers."""
        return self.uses(x, x + 1).difference(*(self.private(x, trainer) for trainer in range(self.trainers)))

    def now(self, x: int) -> set[int]:
        """Rows that must be reduced before x + 1; a window of one batch does not know, so all of them."""
        return self.shared(x) if self.lookahead == 1 else self.uses(x, x + 1) & self.uses(x + 1, x + 2)

    def later(self, x: int) -> set[int]:
        """Rows whose reduction may hide behind x + 1."""
        return self.shared(x) - self.now(x)

    def retired_with(self, x: int) -> range:
        """Batches whose dead rows the plan of x writes back; the closing one, behind the last batch, has the rest."""
        if self.lookahead == 1:
            return range(x, min(x + 1, len(self.batches)))
        if x == len(self.batches):
            return range((x - 1) // self.group * self.group, x)
        return range(max(0, x - self.group), x) if x % self.group == 0 else range(0)
