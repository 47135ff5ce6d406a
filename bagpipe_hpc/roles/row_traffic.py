"""Rows of one group of tables on their way between a trainer's cache and the servers; used by its mover alone."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """

    slots: NDArray[np.int32]
    numbers: NDArray[np.int64]
    records: NDArray[np.float32]
    pending: PendingRows


class RowTraffic:
    """Gets, puts and adds the rows of one group of tables.

    Args:
        window: the rows at the servers; no other thread of this rank uses it.
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
        return FetchedRows(slots, numbers, records, self._window.start_get(numbers, records))

    def keep(self, fetched: FetchedRows) -> None:
        """Put rows that have come into the cache."""
        if fetched.slots.size:
            self.cache.scatter(self._device.to_device(fetched.slots), fetched.records, fetched.numbers)

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
        """Start to add this trainer's changes of rows: their records less those that were fetched, in float32."""
        records = self._gather(np.concatenate((additions.slots, additions.bases)))
        count = additions.rows.size
        return self._window.start_add(additions.rows, records[:count] - records[count:])

    def _gather(self, slots: NDArray[np.int32]) -> NDArray[np.float32]:
        if not slots.size:
            return np.empty((0, self._record_width), dtype=np.float32)
        return self.cache.gather_records(self._device.to_device(slots))
