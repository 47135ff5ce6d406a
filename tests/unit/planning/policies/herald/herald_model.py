"""Herald's caches in plain Python: one row after the other, one sample after the other."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import slice_bounds


@dataclass
class Caches:
    """What each trainer holds: rows, the one that was used longest ago first.

    Attributes:
        trainers: how many.
        most: rows that each may hold; those of the last batch stay, even if they are more. 0 for any number.
    """

    trainers: int
    most: int = 0
    held: list[OrderedDict[int, None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = [OrderedDict() for _ in range(self.trainers)]

    def holder(self, row: int) -> int | None:
        return next((trainer for trainer, held in enumerate(self.held) if row in held), None)

    def take(self, users: dict[int, set[int]]) -> set[int]:
        """The rows that leave when a batch with these users of its rows comes."""
        leaving, turn = set(), 0
        for row in sorted(users):
            holder = self.holder(row)
            if holder not in users[row]:
                if holder is not None:
                    del self.held[holder][row]
                    leaving.add(row)
                holder = sorted(users[row])[turn % len(users[row])]
                turn += 1
            assert holder is not None
            self.held[holder].pop(row, None)
            self.held[holder][row] = None
        for held in self.held:
            for row in list(held):
                if self.most and len(held) > self.most and row not in users:
                    del held[row]
                    leaving.add(row)
        return leaving


def users_of(batch: Bags, samples: list[list[int]]) -> dict[int, set[int]]:
    """The trainers that use each row of a batch."""
    users: dict[int, set[int]] = {}
    for trainer, own in enumerate(samples):
        for sample in own:
            for row in batch.part(sample, sample + 1).values.tolist():
                users.setdefault(row, set()).add(trainer)
    return users


def shared_out(caches: Caches, batch: Bags, number: int, features: Sequence[int]) -> list[list[int]]:
    """The samples of each trainer: to the one that holds the most rows of a sample, as long as it has room.

    Args:
        caches: what trainers hold.
        batch: the look-ups.
        number: number of the batch.
        features: those whose rows count.
    """
    trainers = caches.trainers
    bounds = slice_bounds(batch.samples, trainers)
    room = [last - first for first, last in pairwise(bounds)]
    given: list[list[int]] = [[] for _ in range(trainers)]
    for sample in range(batch.samples):
        own = batch.part(sample, sample + 1)
        rows = [row for row, feature in zip(own.values, own.columns, strict=True) if feature in features]
        best, most = None, -1
        for step in range(trainers):
            trainer = (number + step) % trainers
            score = sum(row in caches.held[trainer] for row in rows)
            if len(given[trainer]) < room[trainer] and score > most:
                best, most = trainer, score
        assert best is not None
        given[best].append(sample)
    return given
