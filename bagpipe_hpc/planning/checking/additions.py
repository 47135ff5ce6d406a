"""Rows to which simulated trainers add their changes: their bases, and which updates a look-up has seen.

`executor` carries plans out with it. With each value it keeps how many updates of each trainer the value contains.
These counts move with what is fetched, added or merged, so that for each look-up one can tell which updates it misses.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.batch_plan import BatchPlan

Int64s = NDArray[np.int64]


def require_settled(batch: int, trainer: int, rows: Int64s, under_way: Iterable[BatchPlan]) -> None:
    """Check that a trainer looks up no row whose change it may still be adding: adding writes the row's slot.

    Args:
        batch: number of the batch.
        trainer: the trainer that looks rows up.
        rows: what it looks up, int64.
        under_way: plans whose groups the batch does not wait for.

    Raises:
        PlanError: it looks up such a row.
    """
    for plan in under_way:
        additions = plan.trainers[trainer].additions
        if additions is not None and (both := np.intersect1d(rows, additions.rows)).size:
            raise PlanError(
                f"batch {batch}: trainer {trainer} looks row {both[0]} up while its change is being added, with group "
                f"{plan.shared.retire_group}: the batch must wait for that (prefetch_after)"
            )


class AddedRows:
    """Values and counts of rows that several trainers may change at once.

    Args:
        store: values of all rows, int64 `[rows]`.
        caches: each trainer's values by slot, int64 `[slots]`.
        most_missing: most updates of other trainers that a look-up may miss.
        prime: the modulus of all values.

    Attributes:
        base_of: the base slot of each row, for each trainer.
        changes: the sum of all updates of each row, int64 `[rows]`.
    """

    def __init__(self, store: Int64s, caches: Sequence[Int64s], most_missing: int, prime: int) -> None:
        trainers = len(caches)
        self.base_of: list[dict[int, int]] = [{} for _ in caches]
        self.changes = np.zeros_like(store)
        self._store, self._caches = store, caches
        self._most_missing, self._prime = most_missing, prime
        self._made = np.zeros((store.size, trainers), dtype=np.int64)
        self._stored = self._made.copy()
        self._seen = [np.zeros((cache.size, trainers), dtype=np.int64) for cache in caches]

    def fetch(self, trainer: int, row: int, slot: int, base: int) -> None:
        """Fetch a new row into its base, and from there into its slot."""
        self.base_of[trainer][row] = base
        for place in (slot, base):
            self._caches[trainer][place] = self._store[row]
            self._seen[trainer][place] = self._stored[row]

    def merge(self, trainer: int, row: int, slot: int, base: int) -> None:
        """Fetch a row anew that this trainer has changed, and keep the change."""
        cache, seen = self._caches[trainer], self._seen[trainer]
        cache[slot] = (self._store[row] + cache[slot] - cache[base]) % self._prime
        seen[slot] += self._stored[row] - seen[base]
        cache[base], seen[base] = self._store[row], self._stored[row]

    def add(self, trainer: int, row: int, slot: int, base: int) -> None:
        """Add a trainer's change of a row."""
        cache, seen = self._caches[trainer], self._seen[trainer]
        self._store[row] = (self._store[row] + cache[slot] - cache[base]) % self._prime
        self._stored[row] += seen[slot] - seen[base]
        cache[base], seen[base] = cache[slot], seen[slot]

    def read(self, batch: int, trainer: int, rows: Int64s, slots: NDArray[np.integer]) -> None:
        """Check that look-ups miss no update of their own trainer, and no more of others' than allowed.

        Raises:
            PlanError: a look-up misses more.
        """
        missing = self._made[rows] - self._seen[trainer][slots]
        of_others = missing.sum(1) - missing[:, trainer]
        for what, most, counts in (("its own", 0, missing[:, trainer]), ("others'", self._most_missing, of_others)):
            if (wrong := np.flatnonzero(counts > most)).size:
                raise PlanError(
                    f"batch {batch}: trainer {trainer} looks row {rows[wrong[0]]} up and misses {counts[wrong[0]]} of "
                    f"{what} updates; {most} at most are allowed"
                )

    def update(self, trainer: int, rows: Iterable[int], slots: NDArray[np.integer], sums: Int64s) -> None:
        """Note an update by a trainer of rows in distinct slots, whose values have changed by `sums`."""
        numbers = np.fromiter(rows, dtype=np.int64, count=slots.size)
        self._made[numbers, trainer] += 1
        self._seen[trainer][slots, trainer] += 1
        self.changes[numbers] += sums
