"""Where rows with one home each live: their slots, their homes, and room for copies.

Legend: `U` unique rows of a batch, `P` pairs of a row and a trainer that uses it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.batch_rows import Bools, Int32s, Int64s, LoadedBatch, distinct
from bagpipe_hpc.planning.row_slots import ABSENT, RowSlots
from bagpipe_hpc.planning.slots import COPY_AREAS, slots_used_up


@dataclass
class UsedBatch(LoadedBatch):
    """A batch in the window, with all users of its rows.

    Attributes:
        pair_rows: the row of each pair, an index into `unique`, `[P]`, ascending.
        pair_users: its trainer, `[P]`, ascending among the pairs of a row.
    """

    pair_rows: Int64s
    pair_users: Int64s

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return super().nbytes + self.pair_rows.nbytes + self.pair_users.nbytes


@dataclass(frozen=True)
class Placed:
    """Where the rows of a batch live while it is computed; all arrays `[U]`.

    Attributes:
        slots: in the cache of their home; `ABSENT` where none is given yet.
        homes: the trainer.
        fetched: absent before, so fetched for this batch.
    """

    slots: Int32s
    homes: Int32s
    fetched: Bools


class HomeSlots(RowSlots):
    """Slots of rows that have one home each: all in private pools; the shared slots are for copies.

    Arguments as for `RowSlots`. The shared slots are cut into areas of the same size, one batch's copies in each.
    """

    areas: ClassVar[int] = COPY_AREAS
    """Batches whose copies may be here at once."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._home = np.zeros(self._slot.size, dtype=np.int32)
        self._area = int(self._first_private) // self.areas
        self._most_copies = 0

    @property
    def state_bytes(self) -> int:
        """Memory of the per-row state."""
        return super().state_bytes + self._home.nbytes

    @property
    def peaks(self) -> tuple[int, int]:
        """Slots of all areas of copies, and most slots of rows in use at once, each of the trainer with the most."""
        return self.areas * self._most_copies, super().peaks[1]

    def look_through(self, rows: Bags, bounds: Sequence[int]) -> UsedBatch:
        """As `RowSlots.look_through`, with all users of each row."""
        batch = super().look_through(rows, bounds)
        users = np.repeat(np.arange(self._trainers), np.diff(batch.starts))
        pairs = distinct(self._places(batch.unique)[batch.rows].astype(np.int64) * self._trainers + users)
        return UsedBatch(
            batch.rows,
            batch.starts,
            batch.samples,
            batch.unique,
            batch.user,
            pairs // self._trainers,
            pairs % self._trainers,
        )

    def _places(self, rows: NDArray[np.integer]) -> Int32s:
        """By row: its index among distinct `rows`; valid until the next call."""
        self._scratch[rows] = np.arange(rows.size, dtype=np.int32)
        return self._scratch

    def pair_homes(
        self,
        unique: NDArray[np.integer],  # noqa: ARG002
        homes: NDArray[np.integer],
        rows: Int64s,
        users: Int64s,  # noqa: ARG002
    ) -> NDArray[np.integer]:
        """Who holds the row of each pair for its user, `[P]`: the home.

        Args:
            unique: rows of a batch, `[U]`.
            homes: of each of them, `[U]`.
            rows: of the pairs, indices into `unique`, `[P]`.
            users: of the pairs, `[P]`.
        """
        return homes[rows]

    def can_fetch(self, batch: UsedBatch, settled: Placed) -> bool:  # noqa: ARG002
        """Whether the homes have slots for all rows of a batch that are fetched."""
        rows = np.bincount(settled.homes[settled.fetched], minlength=self._trainers)
        return all(pool.has(int(count)) for pool, count in zip(self._private_pools, rows, strict=True))

    def place(self, batch: UsedBatch, settled: Placed) -> Placed:
        """Give slots to the rows of a batch that are fetched.

        Raises:
            CapacityError: there are not enough slots, of rows or of copies.
        """
        slots, homes, fetched = self.give_slots(batch, settled), settled.homes, settled.fetched
        self._slot[batch.unique] = slots
        self._home[batch.unique] = homes
        away = batch.pair_users != self.pair_homes(batch.unique, homes, batch.pair_rows, batch.pair_users)
        copies = int(np.bincount(batch.pair_users[away], minlength=1).max())
        self._most_copies = max(self._most_copies, copies)
        if self._most_copies > self._area:
            raise slots_used_up("shared", self.areas * self._area, self.areas * self._most_copies)
        return Placed(slots, homes, fetched)

    def give_slots(self, batch: UsedBatch, settled: Placed) -> Int32s:  # noqa: ARG002
        """The slot of each row of a batch at its home, `[U]`; those that are fetched get one.

        Raises:
            CapacityError: there are not enough slots.
        """
        return self._from_pools(settled.slots, settled.homes, settled.fetched)

    def _from_pools(self, slots: Int32s, homes: Int32s, fetched: Bools) -> Int32s:
        slots = slots.copy()
        for trainer, pool in enumerate(self._private_pools):
            own = fetched & (homes == trainer)
            slots[own] = pool.take(int(own.sum())) + self._first_private
        return slots

    def forget(self, rows: NDArray[np.integer]) -> None:
        """Note that rows leave: they are nowhere for the batches to come."""
        self._slot[rows] = ABSENT

    def writers(self, rows: Int64s) -> Int32s:
        """Who writes back each of the rows that have stayed: its home."""
        return self._home[rows]

    def where(self, rows: NDArray[np.integer]) -> tuple[Int32s, Int32s]:
        """Slots and homes of rows; of those that are nowhere, `ABSENT` and any trainer."""
        return self._slot[rows], self._home[rows]

    def first_copy(self, number: int) -> int:
        """Slot of the first copy of a batch."""
        return number % self.areas * self._area

    def translate(self, unique: NDArray[np.integer], rows: NDArray[np.integer]) -> Int32s:
        """The place of each row among distinct ones, int32 of the shape of `rows`."""
        translated: Int32s = self._places(unique)[rows]
        return translated
