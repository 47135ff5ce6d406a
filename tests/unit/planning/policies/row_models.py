"""Rules of policies in plain Python, one batch and one row after the other: what planners in NumPy are compared with.

Each model is told a batch and who uses its rows, and says what is to happen. Those of Herald, HET and ScratchPipe are
beside their tests, that of BagPipe is `rule_model.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.slices import BatchSlices, slice_bounds
from tests.unit.planning.lookahead.rule_model import Rules

Users = dict[int, set[int]]
"""The trainers that use each row of a batch."""


@dataclass
class Moves:
    """What happens to rows for a batch; sets of rows, or the trainer of each row.

    Attributes:
        fetched: by all trainers.
        fetched_by: by one alone.
        now: summed before the next batch.
        later: summed behind it.
        private: updated by one trainer alone.
        written: at the end of the batch.
        written_by: those of them that only one trainer has.
    """

    fetched: set[int] = field(default_factory=set)
    fetched_by: dict[int, int] = field(default_factory=dict)
    now: set[int] = field(default_factory=set)
    later: set[int] = field(default_factory=set)
    private: dict[int, int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    written_by: dict[int, int] = field(default_factory=dict)


def users_of(rows: Bags, trainers: int, slices: BatchSlices | None = None) -> Users:
    """Who uses the rows of a batch, in contiguous slices if none are given."""
    parts = BatchSlices(slice_bounds(rows.samples, trainers)) if slices is None else slices
    users: Users = {}
    for trainer, part in enumerate(parts.parts(rows)):
        for row in part.values.tolist():
            users.setdefault(row, set()).add(trainer)
    return users


def moves_of(plan: BatchPlan, wanted: Moves) -> Moves:
    """What a plan with versions says, which names the rows that are summed; of `wanted`, who writes what is private."""
    shared, parts = plan.shared, list(enumerate(plan.trainers))
    summed = shared.rows.tolist()
    written = {row: trainer for trainer, part in parts for row in part.write_back_rows.tolist()}
    return Moves(
        set(shared.fetch_rows.tolist()),
        {row: trainer for trainer, part in parts for row in part.fetch_rows.tolist()},
        set(summed[: shared.now_slots.size]),
        set(summed[shared.now_slots.size :]),
        {row: trainer for trainer, part in parts for row in part.rows.tolist()},
        set(written),
        {row: trainer for row, trainer in written.items() if row in wanted.written_by},
    )


def shared_out(users: Users, absent: set[int], private: set[int], later: set[int]) -> Moves:
    """The moves of a batch, but for its write-backs, by which rows are absent, of one trainer alone and not urgent."""
    only = {row: next(iter(users[row])) for row in private}
    return Moves(
        fetched=absent - private,
        fetched_by={row: only[row] for row in absent & private},
        now=users.keys() - private - later,
        later=later,
        private=only,
    )


@dataclass
class HotlineModel:
    """Hotline: hot rows by decayed counts of look-ups; they stay with all trainers, others come for one batch.

    Attributes:
        trainers: number T.
        most: hot rows.
        learning: batches before rows are hot.
        refresh: batches between two choices; 0 for none.
        decay: of counts at a choice.
    """

    trainers: int
    most: int
    learning: int
    refresh: int
    decay: float
    counts: dict[int, float] = field(default_factory=dict)
    hot: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    seen: int = 0

    def step(self, rows: Bags, users: Users) -> Moves:
        """Take in a batch."""
        absent = users.keys() - self.held
        left = self._see(rows.values.tolist())
        dead = users.keys() - self.held
        private = {row for row in dead if len(users[row]) == 1 and self.trainers > 1}
        moves = shared_out(users, absent, private, set())
        moves.written, moves.written_by = dead | left, dict(moves.private)
        return moves

    def _see(self, look_ups: Sequence[int]) -> set[int]:
        """Count, choose where it is time, and hold hot rows; those that are no longer hot."""
        self.seen += 1
        beyond = self.seen - self.learning
        if beyond <= 0 or self.refresh:
            for row in look_ups:
                self.counts[row] = self.counts.get(row, 0.0) + 1
        left = set()
        if beyond == 0 or (beyond > 0 and self.refresh and beyond % self.refresh == 0):
            counted = [row for row, count in self.counts.items() if count]
            self.hot = set(sorted(counted, key=lambda row: (-self.counts[row], row))[: self.most])
            self.counts = {row: count * self.decay for row, count in self.counts.items()}
            left = self.held - self.hot
            self.held -= left
        self.held |= self.hot & set(look_ups)
        return left


def fae_moves(batches: Sequence[Bags], hot: set[int], trainers: int) -> Iterator[Moves]:
    """FAE: the rows of a block of hot batches stay until its end, those of a cold batch for that batch."""
    are_hot = [set(rows.values.tolist()) <= hot for rows in batches]
    resident: set[int] = set()
    for rows, is_hot, follows in zip(batches, are_hot, [*are_hot[1:], False], strict=True):
        users = users_of(rows, trainers)
        goes_on = is_hot and follows
        private = set() if is_hot else {row for row, of_row in users.items() if len(of_row) == 1}
        moves = shared_out(users, users.keys() - resident, private, set())
        resident |= users.keys()
        if not goes_on:
            moves.written, moves.written_by = resident, dict(moves.private)
            resident = set()
        yield moves


@dataclass(frozen=True)
class PinnedRules(Rules):
    """BagPipe's rules for replicated rows, where some never die.

    Attributes:
        pinned: rows that stay once they have come.
    """

    pinned: frozenset[int] = frozenset()

    def fetched(self, x: int) -> set[int]:
        """Absent rows; a pinned one the first time alone."""
        return super().fetched(x) - (self.pinned & self.uses(0, x))

    def dead(self, x: int) -> set[int]:
        """As `bagpipe`, but for pinned ones."""
        return super().dead(x) - self.pinned

    def moves(self) -> Iterator[Moves]:
        """Of all batches, and of the closing plan, which writes back what stayed."""
        for x in range(len(self.batches) + 1):
            moves = Moves(written=set(self.pinned & self.uses(0, x)) if x == len(self.batches) else set())
            if x < len(self.batches):
                only = {row: trainer for trainer in range(self.trainers) for row in self.private(x, trainer)}
                absent = self.fetched(x)
                by_one = {row: trainer for row, trainer in only.items() if row in absent}
                moves = Moves(absent - by_one.keys(), by_one, self.now(x), self.later(x), only)
            for y in self.retired_with(x):
                moves.written |= self.dead(y)
                moves.written_by |= {
                    row: trainer for trainer in range(self.trainers) for row in self.private(y, trainer)
                }
            yield moves
