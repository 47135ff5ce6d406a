"""A planner of rows with one home each that does all but the rules: a policy says what stays, and it writes plans.

A resident row has one *home* trainer, which alone fetches it, updates it and writes it back. Any other trainer whose
slice of a batch uses the row gets a *copy* of its weights for that batch and sends its gradients home.

Legend: `U` unique rows of a batch, `P` pairs of a row and a trainer that uses it, `T` trainers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.batch_plan import BatchPlan, SharedPlan, TrainerPlan, as_positions
from bagpipe_hpc.plan.exchange import ExchangeCounts
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.planning.batch_rows import (
    NO_ROWS,
    NO_SLOTS,
    Bools,
    Int32s,
    Int64s,
    LoadedBatch,
    RetiredByGroup,
    RetiredRows,
    extend_groups,
)
from bagpipe_hpc.planning.homes.choice import PopularLoad, choose_homes
from bagpipe_hpc.planning.homes.pairs import InSlice, Pairs, SumsAtHomes, counts_between, of_each, without_own
from bagpipe_hpc.planning.homes.slots import HomeSlots, Placed, UsedBatch
from bagpipe_hpc.planning.row_slots import ABSENT
from bagpipe_hpc.planning.rule_planner import RulePlanner


class ExchangePlanner(RulePlanner):
    """Keeps the `Planner` protocol for rows with one home each; each rule is a method of its own.

    Of a `RowChoice` it takes `dead` and `now`; a row that its home alone uses is updated at once whatever they say. The
    shared slots are for copies; the rows are in the private slots of their homes.

    Args:
        arguments: as for `RulePlanner`.
        grid: over which trainers exchange rows; left out: directly.
        settings: as for `RulePlanner`.
    """

    slots_kind = HomeSlots
    rows: HomeSlots
    _copied: Bools | None = None  # rows of the next batch of which copies leave before it starts

    def __init__(self, *arguments: Any, grid: Grid | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._grid = grid or Grid.direct(self.trainers)

    # The rules.

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        """A home for each row that is fetched: one of the trainers that use it in this batch (`homes.choice`)."""
        return choose_homes(batch, fetched, PopularLoad(self.trainers))

    def copied_now(self, batch: UsedBatch, following: LoadedBatch | None) -> Bools | None:  # noqa: ARG002
        """Rows of the next batch of which copies leave as soon as this one has updated them; None where there are none.

        Copies of the others leave once the rows of the next batch are fetched.
        """
        return None

    def written(self, number: int, batch: UsedBatch, placed: Placed, retired: RetiredByGroup) -> RetiredByGroup:  # noqa: ARG002
        """Rows that are written back behind a batch, by group: those that leave. A rule may add some that stay.

        Args:
            number: of the batch in its segment, from 0.
            batch: the batch.
            placed: where its rows live.
            retired: the rows that leave behind it, by group.
        """
        return retired

    def held_by(self, rows: NDArray[np.integer], homes: NDArray[np.integer], trainer: int) -> "Held":  # noqa: ARG002
        """Which of some rows a trainer holds: those that have it for their home.

        Args:
            rows: distinct rows `[n]`.
            homes: of each of them `[n]`.
            trainer: number of the trainer.
        """
        return Held(np.flatnonzero(homes == trainer))

    def are_alone(self, batch: UsedBatch) -> Bools:
        """Rows that nobody else holds, `[U]`: if their home alone uses them, it updates them at once."""
        return np.ones(batch.unique.size, dtype=np.bool_)

    def are_shared(self, batch: UsedBatch) -> Bools | None:  # noqa: ARG002
        """Rows that all trainers hold in the same slot, and sum as replicated ones, `[U]`; None where there are none.

        They have no pairs.
        """
        return None

    # The planner.

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """Forget the batches of earlier segments."""
        super().start_segment(training=training, first_step=first_step)
        self._copied = None

    def decide(self, number: int) -> None:
        """As `Planner.decide`."""
        self._place(number)

    def _place(self, number: int) -> "_Decided":
        """Free what is retired before the batch is fetched, then say where its rows live, and which leave behind it."""
        batch, following = self._oldest(number), self._loaded[0] if self._loaded else None
        assert isinstance(batch, UsedBatch), "loaded by HomeSlots"
        slots, homes = self.rows.where(batch.unique)
        fetched: Bools = slots == ABSENT
        homes[fetched] = self.choose_homes(batch, fetched)
        settled = Placed(slots, homes, fetched)
        self._make_room(number, lambda: self.rows.can_fetch(batch, settled))
        placed = self.rows.place(batch, settled)
        choice = self.choose(number, batch, following)
        dead = choice.dead
        self.rows.forget(batch.unique[dead])
        retired = RetiredRows([batch.unique[dead].astype(np.int64)], [placed.slots[dead]], [placed.homes[dead]])
        return _Decided(batch, following, placed, choice.now, self._retire(number, batch, retired))

    def plan(self, number: int) -> BatchPlan:
        """Decide on the oldest batch of the window, and write the decision down."""
        decided = self._place(number)
        batch, placed = decided.batch, decided.placed
        extend_groups(self._unwritten, self.written(number, batch, placed, decided.retired))
        retire_group = self.group_started_by(number)
        shared_now, shared_later = self._shared(decided)
        rows, versions = self.rows.expected_versions(batch.unique[np.concatenate((shared_now, shared_later))])
        shared = SharedPlan(
            batch=number,
            samples=batch.samples,
            prefetch_after=self._prefetch_after,
            retire_group=retire_group,
            unique_rows=batch.unique.size,
            fetched_rows=int(placed.fetched.sum()),
            now_slots=placed.slots[shared_now],
            later_slots=placed.slots[shared_later],
            fetch_rows=NO_ROWS,
            fetch_slots=NO_SLOTS,
            rows=rows,
            versions=versions,
        )
        trainers = self._trainer_plans(number, decided, self._write_backs(retire_group))
        if self._training:
            self.rows.count_update(batch, self._first_step + number + 1)
        return BatchPlan(shared, trainers)

    def _shared(self, decided: "_Decided") -> tuple[Int64s, Int64s]:
        """Rows that all trainers hold, and that are summed now and later, indices into the unique ones."""
        shared = self.are_shared(decided.batch)
        if shared is None:
            return NO_ROWS, NO_ROWS
        return np.flatnonzero(shared & decided.now), np.flatnonzero(shared & ~decided.now)

    def _trainer_plans(
        self, number: int, decided: "_Decided", write_backs: Sequence[tuple[Int64s, Int32s]]
    ) -> tuple[TrainerPlan, ...]:
        batch, placed, pairs = decided.batch, decided.placed, self._pairs(number, decided)
        # Copies stand as they are sent.
        places = np.where(pairs.are_away, self.sending_places()[pairs.homes], 0)
        order = np.lexsort((pairs.rows, places, pairs.kinds, pairs.users))
        in_slice = of_each(order, pairs.users, self.trainers)
        are_summed = (pairs.kinds != InSlice.SOLO) & self._training
        are_now = decided.now[pairs.rows]
        sums = [self._sums(batch, placed, are_summed & which) for which in (are_now, ~are_now)]
        copied = self.copied_now(batch, decided.following)
        next_slots, next_counts = self._copies_of(decided.following, copied)
        rest = pairs.are_away & pairs.are_rest
        rest_slots, rest_counts = self._sent(pairs.homes, pairs.users, placed.slots[pairs.rows], pairs.rows, rest)
        counts = self._exchange_counts(number, pairs, sums, next_counts, rest_counts)
        all_shared = np.concatenate(self._shared(decided))
        plans = []
        for trainer in range(self.trainers):
            own = in_slice[trainer]
            kinds = pairs.kinds[own]
            first, last = batch.starts[trainer], batch.starts[trainer + 1]
            fetch = np.zeros(batch.unique.size, dtype=np.bool_)
            fetch[self.held_by(batch.unique, placed.homes, trainer).rows] = True
            fetch &= placed.fetched
            read = batch.unique[np.concatenate((all_shared, pairs.rows[own]))]
            expected, versions = self.rows.expected_versions(batch.unique[pairs.rows[own]])
            own_slots = pairs.slots[own].astype(np.int32)
            plans.append(
                TrainerPlan(
                    positions=as_positions(self.rows.translate(read, batch.rows[first:last]), read.size),
                    private_slots=own_slots[kinds == InSlice.SOLO],
                    fetch_rows=batch.unique[fetch].astype(np.int64),
                    fetch_slots=placed.slots[fetch],
                    write_back_rows=write_backs[trainer][0],
                    write_back_slots=write_backs[trainer][1],
                    rows=expected,
                    versions=versions,
                    exchange=counts[trainer].encode(),
                    copy_slots=own_slots[kinds <= InSlice.COPY_LATER],
                    lent_slots=own_slots[(kinds == InSlice.LENT_NOW) | (kinds == InSlice.LENT_LATER)],
                    summed_slots=np.concatenate([part.slots[trainer] for part in sums]),
                    sum_places=np.concatenate([part.places[trainer] for part in sums]),
                    sent_slots=np.concatenate((next_slots[trainer], rest_slots[trainer])),
                    hosted=self.hosted(*(part.hosted[trainer] for part in sums)),
                )
            )
        self._copied = copied
        return tuple(plans)

    def _pairs(self, number: int, decided: "_Decided") -> Pairs:
        """The pairs of a batch, and what the user of each does with the row."""
        batch, placed = decided.batch, decided.placed
        rows, users = batch.pair_rows, batch.pair_users
        homes = self.rows.pair_homes(batch.unique, placed.homes, rows, users)
        are_away = homes != users
        solo = self.are_alone(batch)
        solo[rows[are_away]] = False
        now = decided.now[rows]
        copy = np.where(now, InSlice.COPY_NOW, InSlice.COPY_LATER)
        lent = np.where(now, InSlice.LENT_NOW, InSlice.LENT_LATER)
        kinds = np.where(are_away, copy, np.where(solo[rows], InSlice.SOLO, lent))
        are_rest = np.ones(rows.size, dtype=np.bool_) if self._copied is None else ~self._copied[rows]
        slots = placed.slots[rows]
        slots[are_away] = self._copy_slots(number, homes[are_away], users[are_away], are_rest[are_away])
        return Pairs(rows, users, homes, are_away, kinds, are_rest, slots)

    def _exchange_counts(
        self, number: int, pairs: Pairs, sums: Sequence[SumsAtHomes], to_next: Int64s, to_rest: Int64s
    ) -> list[ExchangeCounts]:
        """How many rows each trainer exchanges.

        Args:
            number: of the batch.
            pairs: of the batch.
            sums: that homes make now, and later.
            to_next: copies that homes send for the next batch, `[T homes, T users]`.
            to_rest: the rest of those for this one, as `to_next`.
        """
        to_now, to_later = (without_own(part.sources.T) for part in sums)
        relayed = np.stack([self._relayed(of) for of in (to_now, to_later, to_next, to_rest)], axis=1)
        came = pairs.are_away & ~pairs.are_rest
        copies_here = np.bincount(pairs.users[came], minlength=self.trainers)
        own_now = np.bincount(pairs.users[pairs.kinds == InSlice.LENT_NOW], minlength=self.trainers) * self._training
        return [
            ExchangeCounts(
                now_rows=sums[0].slots[trainer].size,
                own_now=int(own_now[trainer]),
                rest_slot=self.rows.first_copy(number) + int(copies_here[trainer]),
                next_slot=self.rows.first_copy(number + 1),
                columns=self._grid.columns,
                now_to=to_now[trainer],
                now_from=sums[0].sources[trainer],
                later_to=to_later[trainer],
                later_from=sums[1].sources[trainer],
                next_to=to_next[trainer],
                next_from=to_next[:, trainer],
                rest_to=to_rest[trainer],
                rest_from=to_rest[:, trainer],
                relayed=relayed[trainer],
            )
            for trainer in range(self.trainers)
        ]

    def _copy_slots(self, number: int, homes: Int64s, users: Int64s, rest: Bools) -> Int64s:
        """Slots of the copies of a batch: in the order in which they arrive, by home in each of the two parts."""
        order = np.lexsort((np.arange(users.size), homes, rest, users))
        counts = np.bincount(users, minlength=self.trainers)
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        slots = np.empty(users.size, dtype=np.int64)
        slots[order] = self.rows.first_copy(number) + np.arange(users.size) - starts
        return slots

    def _sums(self, batch: UsedBatch, placed: Placed, pairs: Bools) -> SumsAtHomes:
        """What homes sum of the gradients of some pairs."""
        rows, users = batch.pair_rows[pairs], batch.pair_users[pairs]
        homes = self.rows.pair_homes(batch.unique, placed.homes, rows, users)
        order = np.lexsort((rows, users, homes))
        summed = np.unique(rows)
        held = [self.held_by(batch.unique[summed], placed.homes[summed], home) for home in range(self.trainers)]
        place = np.empty(batch.unique.size, dtype=np.int32)  # the same at all who hold a row
        for own in held:
            place[summed[own.rows]] = np.arange(own.rows.size)
        return SumsAtHomes(
            [placed.slots[summed[own.rows]] for own in held],
            of_each(place[rows[order]], homes, self.trainers),
            counts_between(homes, users, self.trainers),
            [own.hosted for own in held],
        )

    def _copies_of(self, following: LoadedBatch | None, copied: Bools | None) -> tuple[list[Int32s], Int64s]:
        """The slots of which homes send copies for the next batch as soon as this one has updated them."""
        if following is None or copied is None:
            return [NO_SLOTS] * self.trainers, np.zeros((self.trainers, self.trainers), dtype=np.int64)
        assert isinstance(following, UsedBatch), "loaded by HomeSlots"
        rows, users = following.pair_rows, following.pair_users
        all_slots, all_homes = self.rows.where(following.unique)
        homes, slots = self.rows.pair_homes(following.unique, all_homes, rows, users), all_slots[rows]
        return self._sent(homes, users, slots, rows, copied[rows] & (homes != users))

    def _sent(
        self, homes: NDArray[np.integer], users: Int64s, slots: NDArray[np.integer], rows: Int64s, pairs: Bools
    ) -> tuple[list[Int32s], Int64s]:
        """What homes send to users: slots by home, users as they are sent to, and how many, `[T homes, T users]`."""
        homes, users, slots, rows = homes[pairs], users[pairs], slots[pairs], rows[pairs]
        order = np.lexsort((rows, self.sending_places()[users], homes))
        parts = of_each(slots[order].astype(np.int32), homes, self.trainers)
        return parts, counts_between(homes, users, self.trainers)

    def hosted(self, now_rows: int, later_rows: int) -> Int32s | None:  # noqa: ARG002
        """What a plan says of rows that are held once a host, so many of those that are summed now and later."""
        return None

    def sending_places(self) -> NDArray[np.intp]:
        """Where each trainer stands in the order in which a sender's rows for the others lie, `[T]`."""
        return self._grid.sending_places

    def _relayed(self, counts: Int64s) -> Int64s:
        """By trainer, what it passes on of each one in its row for each in its column, `[T, C, R]`."""
        rows, columns = self._grid
        if self._grid.is_direct:
            return np.empty((columns, columns, 0), dtype=np.int64)
        return counts.reshape(rows, columns, rows, columns).transpose(0, 3, 1, 2).reshape(-1, columns, rows)


class Held(NamedTuple):
    """What a trainer holds of some rows.

    Attributes:
        rows: which, indices; in the order in which it sums them.
        hosted: how many of them, the first ones, are held by a trainer of each host.
    """

    rows: Int64s
    hosted: int = 0


@dataclass(frozen=True)
class _Decided:
    """What is decided on a batch: where its rows live, which of them the next one reads, and what leaves behind it."""

    batch: UsedBatch
    following: LoadedBatch | None
    placed: Placed
    now: Bools
    retired: RetiredByGroup
