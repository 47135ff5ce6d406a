"""What the oracle tells the trainers about one batch; `plan_record` encodes it. Pure data.

A plan has a part that is the same for all trainers (`SharedPlan`, broadcast) and a part for each trainer
(`TrainerPlan`: its own samples of the batch, its private rows, its share of the write-backs). Where tables have
different widths there is a plan for each group of tables of one width, which knows nothing of the others.

Legend: `n` samples of a trainer's slice, `V` look-ups of it, `S` now + later slots, `P` private slots of the trainer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.exchange import Exchange, ExchangeCounts, Hosted
from bagpipe_hpc.plan.plan_record import Bytes, PlanRecord, encode_each
from bagpipe_hpc.plan.slices import BatchSlices

NO_GROUP = 0
"""Group number that means: nothing to retire, or nothing to wait for. Real groups start at 1."""

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Positions = NDArray[np.int32] | NDArray[np.uint16]

_NARROW_ROWS = 1 << 16


def as_positions(positions: NDArray[np.integer], rows: int) -> Positions:
    """Indices of so many rows, `[V]`, as a plan has them: uint16 where that can number the rows, else int32.

    Positions are a third of the bytes of a plan or more, and the rows of a small slice are few.
    """
    if rows <= _NARROW_ROWS:
        return positions.astype(np.uint16, copy=False)
    return positions.astype(np.int32, copy=False)


@dataclass(frozen=True)
class SharedPlan(PlanRecord):
    """The part of a plan that all trainers receive.

    A segment of n batches ends with a closing plan (batch n, no samples), which completes the last delayed reduction
    and retires every row that is left.
    """

    batch: int
    """Position of the batch in its segment, from 0."""
    samples: int
    """Samples of the global batch; 0 marks the closing plan."""
    prefetch_after: int
    """Group that must be retired on every trainer before rows of this batch are fetched; 0 waits for nothing."""
    retire_group: int
    """Group whose write-backs are in this plan and start after this batch's update; 0 for none."""
    unique_rows: int
    """Unique rows of the global batch."""
    fetched_rows: int
    """How many of them were absent and are fetched, by all trainers or by one."""
    now_slots: Int32s
    """Slots of the rows that the next batch uses: reduced before it starts."""
    later_slots: Int32s
    """Slots of the other shared rows: reduced behind the next batch's compute."""
    fetch_rows: Int64s
    """Global rows that every trainer fetches for this batch."""
    fetch_slots: Int32s
    """Where they go."""
    rows: Int64s
    """Global rows of `now_slots` then `later_slots`, `[S]`; empty unless rows are verified."""
    versions: Int32s
    """Versions (last updating step) that those rows must have when this batch reads them; as `rows`."""

    ARRAYS: ClassVar[dict[str, np.dtype[Any]]] = {
        "now_slots": _INT32,
        "later_slots": _INT32,
        "fetch_rows": _INT64,
        "fetch_slots": _INT32,
        "rows": _INT64,
        "versions": _INT32,
    }

    @property
    def is_closing(self) -> bool:
        """Whether this plan ends its segment."""
        return self.samples == 0


class Additions(NamedTuple):
    """Rows to whose records a trainer adds its changes; arrays `[A]`, as the fields of a `TrainerPlan`."""

    rows: Int64s
    slots: Int32s
    bases: Int32s


class Pulled(NamedTuple):
    """The last of the rows that a trainer fetches: they come into their bases, and from there into other slots.

    Attributes:
        first: number of the first of them among the rows that are fetched.
        new_slots: of the first ones: these become what the base is.
        merged_slots: of the others: these become what the base is, and this trainer's change, which is not added yet.
    """

    first: int
    new_slots: Int32s
    merged_slots: Int32s

    @property
    def new(self) -> slice:
        """Which of the fetched rows are new."""
        return slice(self.first, self.first + self.new_slots.size)

    @property
    def merged(self) -> slice:
        """Which of the fetched rows are merged."""
        return slice(self.new.stop, self.new.stop + self.merged_slots.size)


@dataclass(frozen=True)
class TrainerPlan(PlanRecord):
    """The part of a plan that one trainer receives."""

    positions: Positions
    """For each look-up of the trainer's slice, `[V]`: index into now, later, private slots in this order;
    `as_positions` says how wide."""
    private_slots: Int32s
    """Slots `[P]` of rows that this trainer updates by its own gradients alone: nobody else uses them in this batch, or
    every user adds its change."""
    fetch_rows: Int64s
    """Global rows that this trainer alone fetches, into private slots; rows that are added come last, into their
    bases (`Pulled`)."""
    fetch_slots: Int32s
    """Where they go."""
    write_back_rows: Int64s
    """Global rows of the plan's retire group that this trainer writes back."""
    write_back_slots: Int32s
    """Where they are in its cache."""
    rows: Int64s
    """Global rows of `private_slots`; empty unless rows are verified."""
    versions: Int32s
    """Versions that those rows must have when this batch reads them; as `rows`."""
    samples: Int32s | None = None
    """The trainer's samples `[n]`, in the order of `positions`: numbers within the global batch, or beyond it where
    samples are left out (`plan.full_batches`); None for its default slice (`slice_bounds`)."""
    add_rows: Int64s | None = None
    """Distinct global rows of the plan's retire group to whose records this trainer adds its changes `[A]`: what is in
    `add_slots` less what is in `base_slots`. From then on both are the base and the change, so that a row may stay.
    Other trainers may add to the same rows."""
    add_slots: Int32s | None = None
    """Where they are in its cache, private slots `[A]`."""
    base_slots: Int32s | None = None
    """Private slots where they lie as they were fetched or last added `[A]`, which no batch uses."""
    exchange: Int32s | None = None
    """Where each row has one home: how much trainers exchange, `ExchangeCounts` encoded. The five below are there then,
    too."""
    copy_slots: Int32s | None = None
    """Slots of rows that live elsewhere and whose copies the slice uses `[C]`; the order of these five is that of
    `Exchange`."""
    lent_slots: Int32s | None = None
    """Slots of rows that live here and that both this slice and others use `[N]`."""
    summed_slots: Int32s | None = None
    """Slots of rows that live here and whose gradients this trainer sums `[R]`: now, then later."""
    sum_places: Int32s | None = None
    """For each gradient that it sums `[G]`, now, then later: the place of its row among the slots of that part."""
    sent_slots: Int32s | None = None
    """Slots of rows that live here and of which copies are sent `[E]`; a row stands here once for each who gets it."""
    micro_batches: Int32s | None = None
    """How many of the trainer's samples are in each of its micro-batches `[M]`, at the same weights; None for one. Only
    the last may look up rows that are fetched for this batch."""
    new_slots: Int32s | None = None
    """Slots of rows that are fetched into their bases, as `Pulled.new_slots`."""
    merged_slots: Int32s | None = None
    """Slots of rows that are fetched anew into their bases, as `Pulled.merged_slots`."""
    add_rounds: Int32s | None = None
    """How many of `add_rows` are added in each round, in their order `[K]`; K is the same for all trainers. A round
    begins when that before has ended on every trainer. None for one round."""
    hosted: Int32s | None = None
    """Where rows are held once a host, `Hosted` encoded `[3]`; None where none is."""

    ARRAYS: ClassVar[dict[str, np.dtype[Any]]] = {
        "positions": _INT32,
        "private_slots": _INT32,
        "fetch_rows": _INT64,
        "fetch_slots": _INT32,
        "write_back_rows": _INT64,
        "write_back_slots": _INT32,
        "rows": _INT64,
        "versions": _INT32,
    }
    NARROW: ClassVar[frozenset[str]] = frozenset({"positions"})
    OPTIONAL: ClassVar[dict[str, np.dtype[Any]]] = {
        "samples": _INT32,
        "add_rows": _INT64,
        "add_slots": _INT32,
        "base_slots": _INT32,
        "exchange": _INT32,
        "copy_slots": _INT32,
        "lent_slots": _INT32,
        "summed_slots": _INT32,
        "sum_places": _INT32,
        "sent_slots": _INT32,
        "micro_batches": _INT32,
        "new_slots": _INT32,
        "merged_slots": _INT32,
        "add_rounds": _INT32,
        "hosted": _INT32,
    }

    @property
    def own_slots(self) -> Int32s:
        """Slots of the rows of the slice that are not in the shared part: copies, rows that are lent, private ones."""
        exchanged = self.exchanged
        if exchanged is None:
            return self.private_slots
        return np.concatenate((exchanged.copy_slots, exchanged.lent_slots, self.private_slots))

    @property
    def exchanged(self) -> Exchange | None:
        """What this trainer exchanges with others; None where rows are replicated."""
        if self.exchange is None:
            return None
        names = ("copy_slots", "lent_slots", "summed_slots", "sum_places", "sent_slots")
        arrays = (array for name in names if (array := getattr(self, name)) is not None)
        found = Exchange(ExchangeCounts.decode(self.exchange), *arrays)
        return found if self.hosted is None else found._replace(hosted=Hosted.decode(self.hosted))

    @property
    def additions(self) -> Additions | None:
        """What this trainer adds; None where plans add nothing."""
        if self.add_rows is None or self.add_slots is None or self.base_slots is None:
            return None
        return Additions(self.add_rows, self.add_slots, self.base_slots)

    @property
    def addition_rounds(self) -> tuple[Additions, ...]:
        """What this trainer adds in each round; nothing where plans add nothing."""
        if (whole := self.additions) is None:
            return ()
        if self.add_rounds is None:
            return (whole,)
        ends = np.cumsum([0, *self.add_rounds]).tolist()
        rows, slots, bases = whole
        return tuple(Additions(rows[first:end], slots[first:end], bases[first:end]) for first, end in pairwise(ends))

    @property
    def pulled(self) -> Pulled:
        """What this trainer fetches into bases."""
        new, merged = (np.empty(0, np.int32) if part is None else part for part in (self.new_slots, self.merged_slots))
        return Pulled(self.fetch_rows.size - new.size - merged.size, new, merged)

    @property
    def rows_written(self) -> int:
        """Rows that this trainer writes back or adds."""
        return self.write_back_rows.size + (0 if self.add_rows is None else self.add_rows.size)


AnyRecord = TypeVar("AnyRecord", SharedPlan, TrainerPlan)


@dataclass(frozen=True)
class BatchPlan:
    """A whole plan as the oracle makes it: the shared part, and one part for each trainer.

    Attributes:
        shared: of the tables, or of the first group of them.
        trainers: as `shared`.
        others: the plans of the other groups, where tables have different widths. All groups have the same batch,
            samples, and group to retire.
    """

    shared: SharedPlan
    trainers: Sequence[TrainerPlan]
    others: tuple["BatchPlan", ...] = ()

    @property
    def groups(self) -> tuple["BatchPlan", ...]:
        """The plan of each group of tables; the first one's stands for itself."""
        return (self, *self.others)

    def encode(self) -> list[Bytes]:
        """What goes on the wire of this group of tables: the shared part, then each trainer's."""
        return [self.shared.encode(), *encode_each(self.trainers)]

    def with_samples(self, slices: BatchSlices) -> "BatchPlan":
        """The same plan for trainers whose samples are those of `slices`; that of the first group says so."""
        if slices.are_default:
            return self
        parts = (
            replace(part, samples=slices.of_trainer(number), micro_batches=slices.micro_batches_of(number))
            for number, part in enumerate(self.trainers)
        )
        return replace(self, trainers=tuple(parts))

    def without_versions_up_to(self, step: int) -> "BatchPlan":
        """The same plan for a run that goes on from the checkpoint of a step, from which rows come with version 0."""

        def of_run(record: AnyRecord) -> AnyRecord:
            return replace(record, versions=np.where(record.versions <= step, 0, record.versions).astype(np.int32))

        return replace(
            self,
            shared=of_run(self.shared),
            trainers=tuple(map(of_run, self.trainers)),
            others=tuple(other.without_versions_up_to(step) for other in self.others),
        )


class GroupPlan(NamedTuple):
    """What one trainer gets of the plan of one group of tables."""

    shared: SharedPlan
    own: TrainerPlan

    @property
    def slots(self) -> Int32s:
        """Slots of the rows to which the slice's positions refer, int32 `[U]`."""
        return np.concatenate((self.shared.now_slots, self.shared.later_slots, self.own.own_slots))


@dataclass(frozen=True)
class ReceivedPlan:
    """What one trainer gets of a whole plan.

    Attributes:
        groups: of each group of tables.
    """

    groups: tuple[GroupPlan, ...]

    @property
    def batch(self) -> int:
        """Position of the batch in its segment, from 0."""
        return self.groups[0].shared.batch

    @property
    def batch_samples(self) -> int:
        """Samples of the global batch."""
        return self.groups[0].shared.samples

    @property
    def samples(self) -> Int32s | None:
        """The trainer's own samples, as `TrainerPlan.samples`."""
        return self.groups[0].own.samples

    @property
    def micro_batches(self) -> Int32s | None:
        """Samples of each of the trainer's micro-batches, as `TrainerPlan.micro_batches`."""
        return self.groups[0].own.micro_batches

    @property
    def is_closing(self) -> bool:
        """Whether this plan ends its segment."""
        return self.groups[0].shared.is_closing

    @property
    def retire_group(self) -> int:
        """Group whose write-backs are in this plan; 0 for none."""
        return self.groups[0].shared.retire_group

    @property
    def prefetch_after(self) -> int:
        """Group that must be retired before rows of this batch are fetched; 0 waits for nothing."""
        return max(group.shared.prefetch_after for group in self.groups)

    @property
    def addition_rounds(self) -> tuple[dict[int, Additions], ...]:
        """What the trainer adds in each round, by the number of the group of tables."""
        of_groups = [group.own.addition_rounds for group in self.groups]
        return tuple(
            {group: rounds[number] for group, rounds in enumerate(of_groups) if number < len(rounds)}
            for number in range(max(map(len, of_groups)))
        )

    @property
    def rows_written(self) -> int:
        """Rows that the trainer writes back or adds."""
        return sum(group.own.rows_written for group in self.groups)
