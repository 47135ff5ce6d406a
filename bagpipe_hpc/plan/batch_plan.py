"""What the oracle tells the trainers about one batch, and its one encoding on the wire. Pure data.

A plan has a part that is the same for all trainers (`SharedPlan`, broadcast) and a part for each trainer
(`TrainerPlan`: its own samples of the batch, its private rows, its share of the write-backs). Where tables have
different widths there is a plan for each group of tables of one width, which knows nothing of the others.

Legend: `n` samples of a trainer's slice, `V` look-ups of it, `S` now + later slots, `P` private slots of the trainer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.exchange import Exchange, ExchangeCounts
from bagpipe_hpc.plan.slices import BatchSlices

NO_GROUP = 0
"""Group number that means: nothing to retire, or nothing to wait for. Real groups start at 1."""

_ALIGNMENT = 8
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class PlanRecord:
    """Base of the plan records: integers and flat arrays, encoded in the order in which the fields are declared.

    The encoding is an int64 header (every integer field, then the length of every array field) followed by the
    arrays' bytes, each padded to 8 bytes; it is private to one job, so native byte order is used. Optional arrays come
    behind that, if there is any: a header with the length of each (-1 for one that is not there), then their bytes.
    """

    ARRAYS: ClassVar[dict[str, np.dtype[Any]]] = {}
    """Name -> dtype of the array fields; all other fields but the optional ones are integers."""
    OPTIONAL: ClassVar[dict[str, np.dtype[Any]]] = {}
    """Name -> dtype of array fields that are mostly None, which takes no bytes."""
    _memory: ClassVar[NDArray[np.uint8] | None] = None
    """On a record whose arrays are views of its encoding: that encoding."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The array fields that are there, by name, in their order."""
        fields_of = {name: getattr(self, name) for name in (*self.ARRAYS, *self.OPTIONAL)}
        return {name: array for name, array in fields_of.items() if array is not None}

    def encode(self) -> NDArray[np.uint8]:
        """The record as bytes, uint8 `[encoded size]`; not a copy where it was allocated or decoded in one piece."""
        if self._memory is not None:
            return self._memory
        arrays = self.arrays()
        integers = {name: getattr(self, name) for name in _integer_names(type(self))}
        record = self.allocate({name: array.size for name, array in arrays.items()}, **integers)
        for name, array in arrays.items():
            getattr(record, name)[:] = array
        return record.encode()

    @classmethod
    def allocate(cls, lengths: Mapping[str, int], **integers: int) -> Self:
        """A record whose arrays are still to be filled, in one piece of memory: filling them encodes it.

        Args:
            lengths: of the array fields, by name; optional ones that are not named are None.
            integers: the integer fields.
        """
        required = [lengths[name] for name in cls.ARRAYS]
        optional = [lengths.get(name, -1) for name in cls.OPTIONAL]
        starts = _starts(cls, required)
        has_optional = any(length >= 0 for length in optional)
        ends = starts[1:] + (_optional_starts(cls, optional, starts[-1])[1:] if has_optional else [])
        words = np.empty(ends[-1] // _ALIGNMENT, dtype=np.int64)
        words[[end // _ALIGNMENT - 1 for end in ends]] = 0  # each array's last one, for what lies behind it
        header = [*(integers[name] for name in _integer_names(cls)), *required]
        words[: len(header)] = header
        if has_optional:
            words[starts[-1] // _ALIGNMENT :][: len(optional)] = optional
        return cls._on(words.view(np.uint8), integers, required, starts)

    @classmethod
    def decode(cls, encoded: NDArray[np.uint8]) -> Self:
        """The record that `encode` wrote; its arrays are views of `encoded`, which must be 8-byte aligned."""
        names = _integer_names(cls)
        header = encoded[: (len(names) + len(cls.ARRAYS)) * _ALIGNMENT].view(np.int64).tolist()
        lengths = header[len(names) :]
        starts = _starts(cls, lengths)
        return cls._on(encoded, dict(zip(names, header, strict=False)), lengths, starts)

    @classmethod
    def _on(
        cls, encoded: NDArray[np.uint8], integers: dict[str, int], lengths: Sequence[int], starts: Sequence[int]
    ) -> Self:
        """A record on the memory of its encoding."""
        values: dict[str, Any] = dict(integers)
        for (name, dtype), length, start in zip(cls.ARRAYS.items(), lengths, starts, strict=False):
            values[name] = encoded[start : start + length * dtype.itemsize].view(dtype)
        if starts[-1] < encoded.size:
            values |= cls._optional_on(encoded[starts[-1] :])
        record = cls(**values)
        object.__setattr__(record, "_memory", encoded)  # the class is frozen
        return record

    @classmethod
    def _optional_on(cls, encoded: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """The optional arrays that are there."""
        lengths = encoded[: len(cls.OPTIONAL) * _ALIGNMENT].view(np.int64).tolist()
        starts = _optional_starts(cls, lengths, 0)
        return {
            name: encoded[start : start + length * dtype.itemsize].view(dtype)
            for (name, dtype), length, start in zip(cls.OPTIONAL.items(), lengths, starts, strict=False)
            if length >= 0
        }


def _integer_names(kind: type[PlanRecord]) -> list[str]:
    return [entry.name for entry in fields(kind) if entry.name not in kind.ARRAYS and entry.name not in kind.OPTIONAL]


def _starts(kind: type[PlanRecord], lengths: Sequence[int]) -> list[int]:
    """Where each array begins in the encoding, and the end of the last."""
    return _laid_out((len(_integer_names(kind)) + len(lengths)) * _ALIGNMENT, lengths, kind.ARRAYS)


def _optional_starts(kind: type[PlanRecord], lengths: Sequence[int], start: int) -> list[int]:
    """The same of optional arrays, -1 long where they are not there, whose header begins at `start`."""
    return _laid_out(start + len(lengths) * _ALIGNMENT, [max(0, length) for length in lengths], kind.OPTIONAL)


def _laid_out(start: int, lengths: Sequence[int], types: Mapping[str, np.dtype[Any]]) -> list[int]:
    """Where arrays begin, one behind the other from `start`, and the end of the last."""
    starts = [start]
    for length, dtype in zip(lengths, types.values(), strict=True):
        starts.append(starts[-1] + (length * dtype.itemsize + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT)
    return starts


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


@dataclass(frozen=True)
class TrainerPlan(PlanRecord):
    """The part of a plan that one trainer receives."""

    positions: Int32s
    """For each look-up of the trainer's slice, `[V]`: index into now, later, private slots in this order."""
    private_slots: Int32s
    """Slots `[P]` of rows that this trainer updates by its own gradients alone: nobody else uses them in this batch, or
    every user adds its change."""
    fetch_rows: Int64s
    """Global rows that this trainer alone fetches, into private slots; a row that is added comes twice, the second time
    for its base."""
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
    """The trainer's samples, numbers within the global batch `[n]`, in the order of `positions`; None for its default
    slice (`slice_bounds`)."""
    add_rows: Int64s | None = None
    """Distinct global rows of the plan's retire group to whose records this trainer adds its changes `[A]`: what is in
    `add_slots` less what is in `base_slots`. Other trainers may add to the same rows."""
    add_slots: Int32s | None = None
    """Where they are in its cache, private slots `[A]`."""
    base_slots: Int32s | None = None
    """Private slots where they lie as they were fetched `[A]`, which no batch uses."""
    exchange: Int32s | None = None
    """Where each row has one home: how much trainers exchange, `ExchangeCounts` encoded. The five below are there then,
    too."""
    copy_slots: Int32s | None = None
    """See `Exchange`, as for the next four."""
    lent_slots: Int32s | None = None
    summed_slots: Int32s | None = None
    sum_places: Int32s | None = None
    sent_slots: Int32s | None = None

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
        return Exchange(ExchangeCounts.decode(self.exchange), *arrays)

    @property
    def additions(self) -> Additions | None:
        """What this trainer adds; None where plans add nothing."""
        if self.add_rows is None or self.add_slots is None or self.base_slots is None:
            return None
        return Additions(self.add_rows, self.add_slots, self.base_slots)

    @property
    def rows_written(self) -> int:
        """Rows that this trainer writes back or adds."""
        return self.write_back_rows.size + (0 if self.add_rows is None else self.add_rows.size)


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
    trainers: tuple[TrainerPlan, ...]
    others: tuple["BatchPlan", ...] = ()

    @property
    def groups(self) -> tuple["BatchPlan", ...]:
        """The plan of each group of tables; the first one's stands for itself."""
        return (self, *self.others)

    def with_samples(self, slices: BatchSlices) -> "BatchPlan":
        """The same plan for trainers whose samples are those of `slices`; that of the first group says so."""
        if slices.samples is None:
            return self
        parts = [replace(part, samples=slices.of_trainer(number)) for number, part in enumerate(self.trainers)]
        return replace(self, trainers=tuple(parts))


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
    def rows_written(self) -> int:
        """Rows that the trainer writes back or adds."""
        return sum(group.own.rows_written for group in self.groups)
