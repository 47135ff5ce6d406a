"""How many rows each trainer moves for each batch, counted row by row: slow, and read off the rules alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.unit.planning.lookahead.rule_model import Rules


@dataclass
class Moved:
    """What one trainer moves with one batch, in rows.

    Attributes:
        fetched: from the servers.
        copied: that other trainers send it, for this batch's successor after this one's update, or for this batch.
        sent_home: whose gradients it sends to other trainers.
        relayed: that come through it from its row of the grid, for itself or others.
        summed: whose gradients it adds up over several trainers.
        updated: by its optimizer.
        written: to the servers.
    """

    fetched: int = 0
    copied: int = 0
    sent_home: int = 0
    relayed: int = 0
    summed: int = 0
    updated: int = 0
    written: int = 0


@dataclass
class HomeCounts:
    """Rows with one home: each is fetched, updated and written back once, and other users have a copy for a batch.

    Attributes:
        rules: the trace.
        homes: of the rows in the window.
        copies: of each batch, how many each trainer gets in all.
        columns: of the grid over which rows travel; 0: directly.
    """

    rules: Rules
    homes: dict[int, int] = field(default_factory=dict)
    copies: list[list[int]] = field(default_factory=list)
    columns: int = 0

    def of_batches(self) -> list[list[Moved]]:
        """For each batch and the closing plan, what each trainer moves."""
        rules = self.rules
        moved = [[Moved() for _ in range(rules.trainers)] for _ in range(len(rules.batches) + 1)]
        left: list[dict[int, int]] = []  # of each batch, rows that it uses last, and their homes
        for x, of_batch in enumerate(moved[:-1]):
            absent = rules.fetched(x)
            fetched = [(row, sorted(rules.users(x, row))) for row in in_order(rules, x) if row in absent]
            homes = homes_by_the_rule([users for _, users in fetched])
            for (row, _), home in zip(fetched, homes, strict=True):
                self.homes[row] = home
                of_batch[home].fetched += 1
            self.copies.append([0] * rules.trainers)
            for row in rules.uses(x, x + 1):
                home, users = self.homes[row], sorted(rules.users(x, row))
                of_batch[home].updated += 1
                of_batch[home].summed += users != [home]
                for user in set(users) - {home}:
                    of_batch[user].sent_home += 1
                    self.relay(of_batch, user, home)
                    self.copies[x][user] += 1
                    is_updated_before = rules.lookahead > 1 and row in rules.uses(x - 1, x)
                    moved[x - is_updated_before][user].copied += 1
                    self.relay(moved[x - is_updated_before], home, user)
            left.append({row: self.homes.pop(row) for row in rules.dead(x)})
        for x, of_batch in enumerate(moved):
            for y in rules.retired_with(x):
                for home in left[y].values():
                    of_batch[home].written += 1
        return moved

    def relay(self, of_batch: list[Moved], sender: int, receiver: int) -> None:
        """A row goes through the trainer in the row of its sender and the column of its receiver."""
        if self.columns:
            of_batch[sender // self.columns * self.columns + receiver % self.columns].relayed += 1


def homes_by_the_rule(users: Sequence[Sequence[int]]) -> list[int]:
    """A home for each row of a batch that is fetched, by the users of each, ascending."""
    homes: list[int] = []
    turn, exchanged = 0, Counter[int]()
    for of_row in users:
        if len(of_row) < 8:
            homes.append(of_row[turn % len(of_row)])
            turn += 1
        else:
            homes.append(min(of_row, key=lambda user: (exchanged[user], user)))
            exchanged[homes[-1]] += len(of_row) - 1
    return homes


def in_order(rules: Rules, x: int) -> list[int]:
    """The distinct rows of a batch as they first come, feature after feature."""
    batch = rules.batches[x]
    return list(
        dict.fromkeys(
            row for _, row in sorted(zip(batch.columns.tolist(), batch.values.tolist(), strict=True), key=by_feature)
        )
    )


def by_feature(look_up: tuple[int, int]) -> int:
    return look_up[0]


def replicated_counts(rules: Rules) -> list[list[Moved]]:
    """Rows that all trainers hold; who writes back what all have is not said: the first trainer counts it here."""
    moved = []
    for x in range(len(rules.batches) + 1):
        of_batch = [Moved() for _ in range(rules.trainers)]
        if x < len(rules.batches):
            shared, fetched = rules.shared(x), rules.fetched(x)
            for trainer, own in enumerate(of_batch):
                private = rules.private(x, trainer)
                own.fetched = len(fetched & shared) + len(fetched & private)
                own.summed = len(shared)
                own.updated = len(shared) + len(private)
        of_batch[0].written = sum(len(rules.dead(y)) for y in rules.retired_with(x))
        moved.append(of_batch)
    return moved
