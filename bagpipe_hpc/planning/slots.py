"""Slots of the row caches: which are free, and how many were ever in use at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CapacityError

MOST_SLOTS = int(np.iinfo(np.int32).max)
"""Most slots of a cache, shared and private: plans number them with 32 bits."""
UNLIMITED = 1 << 30
"""Capacity of a pool that only measures how many slots are needed: half of the numbers; private slots have the rest."""
COPY_AREAS = 2
"""Areas of the shared slots where rows have one home: a batch's copies arrive while the batch before is computed."""


class CacheSlots(NamedTuple):
    """Slots of a trainer's cache for the rows of one group of tables.

    Attributes:
        shared: slots that mean the same row on every trainer; where each row has one home, slots for copies.
        private: further slots of each trainer that are its own.
        reserved: how many slots for copies, at the ends of their areas, are not expected to be used. They have numbers
            and addresses, and take memory once they are used.
    """

    shared: int
    private: int
    reserved: int = 0

    @property
    def total(self) -> int:
        """All slots that have numbers."""
        return self.shared + self.private

    @property
    def held(self) -> int:
        """Slots that are expected to be used, and take memory from the start."""
        return self.total - self.reserved

    @property
    def reserved_slots(self) -> tuple[range, ...]:
        """Numbers of the slots that take memory once they are used."""
        if not self.reserved:
            return ()
        area, part = self.shared // COPY_AREAS, self.reserved // COPY_AREAS
        return tuple(range(end - part, end) for end in range(area, COPY_AREAS * area + 1, area))

    def reserving(self, most: int) -> "CacheSlots":
        """The same with at most `most` reserved slots."""
        reserved = min(self.reserved, most - most % COPY_AREAS)
        return CacheSlots(self.shared - self.reserved + reserved, self.private, reserved)


def first_private_slot(shared_capacity: int) -> int:
    """Number of the first private slot; while needs are only measured, private slots have the upper half."""
    return min(shared_capacity, UNLIMITED)


def slots_used_up(name: str, capacity: int, needed: int) -> CapacityError:
    """The error of a pool that has fewer slots than a plan needs; `fit_window` makes sure that it does not happen."""
    cure = "; set a smaller lookahead.batches or train.batch_size" if capacity == UNLIMITED else ""
    return CapacityError(f"the {name} slots are used up: {capacity} exist, {needed} are needed{cure}")


class SlotPool:
    """Numbers 0 .. capacity - 1, handed out and given back in bulk.

    Slots that were given back are handed out first, the latest first, so a fresh number is used only when all lower
    ones are in use: `peak` is exactly the largest number of slots that were ever in use together.
    """

    def __init__(self, name: str, capacity: int = UNLIMITED) -> None:
        self._name = name
        self._capacity = capacity
        self._free = np.empty(1024, dtype=np.int32)
        self._free_count = 0
        self.peak = 0

    def has(self, count: int) -> bool:
        """Whether `count` slots are left."""
        return self.peak + max(0, count - self._free_count) <= self._capacity

    def take(self, count: int) -> NDArray[np.int32]:
        """Hand out `count` slots, int32.

        Raises:
            CapacityError: fewer are left.
        """
        reused = min(count, self._free_count)
        fresh = count - reused
        if self.peak + fresh > self._capacity:
            raise slots_used_up(self._name, self._capacity, self.peak + fresh)
        slots = np.empty(count, dtype=np.int32)
        slots[:reused] = self._free[self._free_count - reused : self._free_count][::-1]
        slots[reused:] = np.arange(self.peak, self.peak + fresh, dtype=np.int32)
        self._free_count -= reused
        self.peak += fresh
        return slots

    def give(self, slots: NDArray[np.int32]) -> None:
        """Take slots back."""
        needed = self._free_count + slots.size
        if needed > self._free.size:
            self._free = np.concatenate((self._free, np.empty(max(needed, self._free.size), dtype=np.int32)))
        self._free[self._free_count : needed] = slots
        self._free_count = needed
