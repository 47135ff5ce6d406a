"""Rows of one group of tables on their way between a trainer's cache and the servers; used by its mover alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.mpi.rows.transfer import PendingRows
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.plan.batch_plan import Additions, GroupPlan, TrainerPlan
from bagpipe_hpc.rows.store import Use
from bagpipe_hpc.rows.updated import UpdatedRows


@dataclass(frozen=True)
class FetchedRows:
    """Rows on their way to the cache.

    Attributes:
        slots: where the rows go, int32 `[N]`.
        numbers: of the rows in their group, int64 `[N]`.
        records: where they arrive, float32 `[N, W]`.
        pending: the get.
        new: of those that come into their bases and are new.
        merged: of those that come into their bases and have changes here.
    """

    slots: NDArray[np.int32]
    numbers: NDArray[np.int64]
    records: NDArray[np.float32]
    pending: PendingRows
    new: "Based"
    merged: "Based"


class Based(NamedTuple):
    """Rows that come into their bases: which of the fetched ones they are, `[M]`, and their own slots, int32 `[M]`."""

    places: NDArray[np.int64]
    slots: NDArray[np.int32]


class RowTraffic:
    """Gets, puts and adds the rows of one group of tables.

    Args:
        window: the rows at the servers. Within a segment no other thread of this rank uses it.
        cache: the rows at this trainer.
        record_width: float32 numbers W of a row's record.
        updated: where rows are noted that were written back; None where nobody asks.
    """

    def __init__(
        self, window: RowWindow, cache: RowCache, record_width: int, updated: UpdatedRows | None = None
    ) -> None:
        self.cache = cache
        self._window = window
        self._device = cache.device
        self._record_width = record_width
        self._updated = updated

    @property
    def most_at_once(self) -> int:
        """Fetches, and write-backs, that are worth having under way at a time."""
        return self._window.most_at_once

    @property
    def reads_ahead(self) -> bool:
        """Whether servers want to know of rows before they are fetched and written back."""
        return self._window.reads_ahead

    def announce_fetch(self, plan: GroupPlan) -> None:
        """Tell the servers what a plan fetches; plans are announced in the order in which they are fetched."""
        self._window.announce(Use.GET, np.concatenate([part.fetch_rows for part in plan]))

    def announce_put(self, plan: TrainerPlan) -> None:
        """Tell the servers what a plan writes back; plans are announced in their order."""
        self._window.announce(Use.PUT, plan.write_back_rows)

    def start_fetch(self, plans: Sequence[GroupPlan]) -> FetchedRows:
        """Start to get what the plans of some batches fetch."""
        numbers = np.concatenate([part.fetch_rows for plan in plans for part in plan])
        slots = np.concatenate([part.fetch_slots for plan in plans for part in plan])
        records = self._device.new_array((numbers.size, self._record_width))
        new, merged = _based(plans)
        return FetchedRows(slots, numbers, records, self._window.start_get(numbers, records), new, merged)

    def keep(self, fetched: FetchedRows) -> None:
        """Put rows that have come into the cache."""
        if not fetched.slots.size:
            return
        new, merged = fetched.new, fetched.merged
        _, changes = self._changed(merged.slots, fetched.slots[merged.places])
        self._scatter(fetched.slots, fetched.records, fetched.numbers)
        self._scatter(new.slots, fetched.records[new.places], fetched.numbers[new.places])
        self._scatter(merged.slots, fetched.records[merged.places] + changes, fetched.numbers[merged.places])

    def note(self, plan: TrainerPlan) -> None:
        """Note the rows that a plan writes back."""
        if self._updated:
            self._updated.add(plan.write_back_rows)
            if plan.additions:
                self._updated.add(plan.additions.rows)

    def put(self, plan: TrainerPlan) -> PendingRows:
        """Start to put the records that a plan tells this trainer to write back."""
        return self._window.start_put(plan.write_back_rows, self._gather(plan.write_back_slots))

    def add(self, additions: Additions) -> PendingRows:
        """Start to add this trainer's changes of rows: their records less their bases.

        Both become the base and the change, rounded as the servers round it: what they have if nobody else adds.
        """
        before, changes = self._changed(additions.slots, additions.bases)
        added = before + changes
        self._scatter(additions.slots, added, additions.rows)
        self._scatter(additions.bases, added, additions.rows)
        return self._window.start_add(additions.rows, changes)

    def _changed(
        self, slots: NDArray[np.int32], bases: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Bases, and what records are less their bases, float32 `[N, W]`."""
        records, before = np.split(self._gather(np.concatenate((slots, bases))), 2)
        return before, records - before

    def _scatter(self, slots: NDArray[np.int32], records: NDArray[np.float32], numbers: NDArray[np.int64]) -> None:
        if slots.size:
            self.cache.scatter(self._device.to_device(slots), records, numbers)

    def _gather(self, slots: NDArray[np.int32]) -> NDArray[np.float32]:
        if not slots.size:
            return np.empty((0, self._record_width), dtype=np.float32)
        return self.cache.gather_records(self._device.to_device(slots))


def _based(plans: Sequence[GroupPlan]) -> tuple[Based, Based]:
    """Of the rows that plans fetch, one plan after the other, those that come into their bases: new and merged ones."""
    places: list[list[NDArray[np.int64]]] = [[], []]
    slots: list[list[NDArray[np.int32]]] = [[], []]
    first = 0
    for shared, own in plans:
        first += shared.fetch_rows.size
        pulled = own.pulled
        parts = ((pulled.new, pulled.new_slots), (pulled.merged, pulled.merged_slots))
        for kind, (part, own_slots) in enumerate(parts):
            places[kind].append(first + np.arange(part.start, part.stop))
            slots[kind].append(own_slots)
        first += own.fetch_rows.size
    new, merged = (Based(np.concatenate(of), np.concatenate(to)) for of, to in zip(places, slots, strict=True))
    return new, merged
