"""Slots of the row caches: which are free, and how many were ever in use at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CapacityError

MOST_SLOTS = int(np.iinfo(np.int32).max)
"""Of a cache, shared and private: plans number them with 32 bits."""
UNLIMITED = 1 << 30
"""Capacity of a pool that only measures how many slots are needed: half of the numbers, the other half are private."""


class CacheSlots(NamedTuple):
    """Slots of a trainer's cache for the rows of one group of tables.

    Attributes:
        shared: slots that mean the same row on every trainer.
        private: further slots, of each trainer alone.
    """

    shared: int
    private: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.shared + self.private


def first_private_slot(shared_capacity: int) -> int:
    """Number of the first private slot; while needs are only measured, private slots take the upper half."""
    return min(shared_capacity, UNLIMITED)


def slots_used_up(name: str, capacity: int, needed: int) -> CapacityError:
    """The error of a pool that cannot give what a plan needs; `fit_window` sees to it that this does not happen."""
    cure = "; set a smaller lookahead.batches or train.batch_size" if capacity == UNLIMITED else ""
    return CapacityError(f"the {name} slots are used up: {capacity} exist, {needed} are needed{cure}")


class SlotPool:
    """Numbers 0 .. capacity - 1, handed out and given back in bulk.

    Slots that were given back are handed out first, the latest first, so a fresh number is touched only when all
    earlier ones are in use: `peak` is exactly the largest number of slots that were ever in use together.
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
