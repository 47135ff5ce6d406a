"""What the oracle tells the trainers about one batch, and its one encoding on the wire. Pure data.

A plan has a part that is the same for all trainers (`SharedPlan`, broadcast) and a part for each trainer
(`TrainerPlan`: its own slice of the batch, its private rows, its share of the write-backs).

Legend: `n` samples of a trainer's slice, `F` sparse features, `S` now + later slots, `P` private slots of the trainer.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

NO_GROUP = 0
"""Group number that means: nothing to retire, or nothing to wait for. Real groups start at 1."""

_ALIGNMENT = 8
_Record = TypeVar("_Record", bound="PlanRecord")

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class PlanRecord:
    """Base of the plan records: integers and flat arrays, encoded in the order in which the fields are declared.

    The encoding is an int64 header (every integer field, then the length of every array field) followed by the
    arrays' bytes, each padded to 8 bytes; it is private to one job, so native byte order is used.
    """

    ARRAYS: ClassVar[dict[str, Any]] = {}
    """Name -> dtype of the array fields; all other fields are integers."""

    def encode(self) -> NDArray[np.uint8]:
        """The record as bytes, uint8 `[encoded size]`."""
        header = [int(getattr(self, name)) for name in self._integers()]
        header += [getattr(self, name).size for name in self.ARRAYS]
        parts = [np.asarray(header, dtype=np.int64).view(np.uint8)]
        for name, dtype in self.ARRAYS.items():
            content = np.ascontiguousarray(getattr(self, name), dtype=dtype).reshape(-1).view(np.uint8)
            parts += [content, np.zeros(-content.size % _ALIGNMENT, dtype=np.uint8)]
        return np.concatenate(parts)

    @classmethod
    def decode(cls: type[_Record], encoded: NDArray[np.uint8]) -> _Record:
        """The record that `encode` wrote; its arrays are views of `encoded`, which must be 8-byte aligned."""
        integers = cls._integers()
        header_bytes = (len(integers) + len(cls.ARRAYS)) * 8
        header = encoded[:header_bytes].view(np.int64).tolist()
        values: dict[str, Any] = dict(zip(integers, header[: len(integers)], strict=True))
        position = header_bytes
        for (name, dtype), length in zip(cls.ARRAYS.items(), header[len(integers) :], strict=True):
            size = length * np.dtype(dtype).itemsize
            values[name] = encoded[position : position + size].view(dtype)
            position += size + -size % _ALIGNMENT
        return cls(**values)

    @classmethod
    def _integers(cls) -> list[str]:
        return [entry.name for entry in fields(cls) if entry.name not in cls.ARRAYS]


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

    ARRAYS: ClassVar[dict[str, Any]] = {
        "now_slots": np.int32,
        "later_slots": np.int32,
        "fetch_rows": np.int64,
        "fetch_slots": np.int32,
        "rows": np.int64,
        "versions": np.int32,
    }

    @property
    def is_closing(self) -> bool:
        """Whether this plan ends its segment."""
        return self.samples == 0


@dataclass(frozen=True)
class TrainerPlan(PlanRecord):
    """The part of a plan that one trainer receives."""

    positions: Int32s
    """For each look-up of the trainer's slice, flat `[n * F]`: index into now, later, private slots in this order."""
    private_slots: Int32s
    """Slots `[P]` of rows that only this trainer uses in this batch and nobody uses again inside the window."""
    fetch_rows: Int64s
    """Global rows that this trainer alone fetches, into private slots."""
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

    ARRAYS: ClassVar[dict[str, Any]] = {
        "positions": np.int32,
        "private_slots": np.int32,
        "fetch_rows": np.int64,
        "fetch_slots": np.int32,
        "write_back_rows": np.int64,
        "write_back_slots": np.int32,
        "rows": np.int64,
        "versions": np.int32,
    }


@dataclass(frozen=True)
class BatchPlan:
    """A whole plan as the oracle makes it: the shared part, and one part for each trainer."""

    shared: SharedPlan
    trainers: tuple[TrainerPlan, ...]
