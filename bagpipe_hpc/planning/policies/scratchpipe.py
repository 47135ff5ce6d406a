"""ScratchPipe (ISCA 2022), `scratchpipe`: rows stay until their slots are needed, and the least recently used leave.

With look-ahead the cache always hits: which rows leave for batch b is decided while batch b - past is computed, with
the batches up to b + future at hand. A row of the batches b - past to b + future is *held*.

    plan(b)     misses of b take free slots; where these are too few, rows leave that are not held, least recently used
                first, by the newest loaded batch that looks a row up
    leave       behind batch b - past, with the group of the same number: the rows of this batch are held, so all rows
                that leave have had their last update
    fetch(b)    once group b - past - future - 1 is at the servers; where slots are lacking, a later group, at the
                latest b - past, with which the rows leave that make room for b

Legend: `U` unique rows of a batch.
"""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.plan.batch_plan import NO_GROUP
from bagpipe_hpc.planning.batch_rows import Int64s, LoadedBatch, RowChoice
from bagpipe_hpc.planning.planner import Planner, PlannerSize
from bagpipe_hpc.planning.policies.scratchpipe_settings import ScratchPipeSettings
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.rule_planner import RulePlanner
from bagpipe_hpc.planning.slots import UNLIMITED, CacheSlots
from bagpipe_hpc.planning.window import Window

_STATE_BYTES = 5
"""Memory for a row beside its slot: its newest use, and whether it has or will have a slot."""


class ScratchPipe(Policy):
    """Keeps what fits into `cache.rows`; without that, what the held batches need.

    All trainers hold a row that one of them uses: rows are replicated.
    """

    Settings = ScratchPipeSettings
    writes_apart = True

    def __init__(self, settings: Any, facts: RunFacts) -> None:
        super().__init__(settings, facts)
        self.fetches_late = facts.cache_rows > 0  # else all batches must be read to know how many rows are held

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        """The batches whose rows are held, whatever is wanted."""
        return Window(self.settings.past + 1 + self.settings.future, 1)

    def planner(self, window: Window, shared_capacity: int = UNLIMITED, private_capacity: int = UNLIMITED) -> Planner:
        """A planner in NumPy; it needs the window that `window` returns."""
        facts = self.facts
        return ScratchPipePlanner(
            facts.total_rows,
            facts.trainers,
            window,
            min(shared_capacity, facts.cache_rows or UNLIMITED),
            private_capacity,
            verify=facts.verify,
            feature_tables=facts.feature_tables,
            past=self.settings.past,
            future=self.settings.future,
        )

    def expected_slots(self, beginning: CacheSlots) -> CacheSlots:
        """All of `cache.rows`: they fill up sooner or later."""
        if not self.facts.cache_rows:
            return super().expected_slots(beginning)
        return CacheSlots(min(self.facts.total_rows, self.facts.cache_rows), 0)

    def least_bytes(self, window: Window, most_batches: int) -> int:
        """As by default, with the planner's further arrays over all rows."""
        return super().least_bytes(window, most_batches) + _STATE_BYTES * self.facts.total_rows


class ScratchPipePlanner(RulePlanner):
    """Plans ScratchPipe's rules; each is a method of its own.

    Args:
        total_rows: as for `RulePlanner`.
        trainers: as for `RulePlanner`.
        window: as for `RulePlanner`.
        shared_capacity: slots for all rows; without a limit, every row that is not held leaves.
        private_capacity: as for `RulePlanner`; none is used.
        past: when rows make room for a batch, the rows of this many batches before it stay.
        future: when rows make room for a batch, the rows of this many batches after it stay.
        settings: as for `RulePlanner`.
    """

    def __init__(
        self,
        total_rows: int,
        trainers: int,
        window: Window,
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
        *,
        past: int,
        future: int,
        **settings: Any,
    ) -> None:
        super().__init__(total_rows, trainers, window, shared_capacity, private_capacity, **settings)
        self._past, self._future = past, future
        self._capacity = shared_capacity
        self._newest_use = np.empty(total_rows, dtype=np.int32)  # of rows that the segment has loaded
        self._is_in = np.zeros(total_rows, dtype=np.bool_)  # has a slot once the planned batches have come
        self._count_in = self._planned = self._list_bytes = 0
        self._left: Int64s = np.empty(0, dtype=np.int64)
        self._used: deque[tuple[int, NDArray[np.integer]]] = deque()  # rows of planned batches, the oldest first

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """Forget the batches of earlier segments."""
        super().start_segment(training=training, first_step=first_step)
        self._is_in.fill(False)
        self._count_in = self._planned = 0
        self._used.clear()

    def note_loaded(self, number: int, batch: LoadedBatch) -> None:
        """Note the newest use of the batch's rows."""
        self._newest_use[batch.unique] = number

    def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:
        """Let every row of the batch stay, at all trainers; make room for the batch that comes `past` batches later.

        Raises:
            CapacityError: the rows that are held do not fit.
        """
        left = [np.empty(0, dtype=np.int64)]  # nothing leaves for the first batches
        while (ahead := self._planned - number) <= min(self._past, len(self._loaded)):
            left.append(self._make_room_for(self._planned, self._loaded[ahead - 1] if ahead else batch))
            self._planned += 1
        self._left = np.concatenate(left)
        nothing = np.zeros(batch.unique.size, dtype=np.bool_)
        now = nothing if following is None else self.rows.are_in(batch.unique, following.unique)
        return RowChoice(dead=nothing, private=nothing, now=now)

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        """Rows that make room."""
        return self._left

    def prefetch_after(self, number: int) -> int:
        """An absent row left to make room for a batch more than `future` batches back, or was never in the cache."""
        return max(NO_GROUP, number - self._past - self._future - 1)

    def latest_prefetch_after(self, number: int) -> int:
        """The group with which rows leave to make room for the batch."""
        return max(NO_GROUP, number - self._past)

    def is_held(self, newest_use: int, planned: int) -> bool:
        """Whether rows whose newest loaded use is batch `newest_use` stay while room is made for batch `planned`."""
        return newest_use >= planned - self._past

    def _make_room_for(self, planned: int, batch: LoadedBatch) -> Int64s:
        """Rows that leave for batch `planned`."""
        self._count_in += int((~self._is_in[batch.unique]).sum())
        self._is_in[batch.unique] = True
        self._used.append((planned, batch.unique))
        self._drop_stale()
        wanted = self._count_in - self._capacity if self._capacity < UNLIMITED else self._count_in
        left = self._least_recently_used(planned, wanted)
        self._is_in[left] = False
        self._count_in -= left.size
        if self._count_in > self._capacity:
            raise CapacityError(
                f"batch {planned}: a cache of {self._capacity} rows, and the batch, {self._past} before it and "
                f"{self._future} behind it have {self._count_in} rows that must stay; raise cache.rows, or lower "
                "train.batch_size, policy.past or policy.future"
            )
        return left

    def _least_recently_used(self, planned: int, wanted: int) -> Int64s:
        """`wanted` rows that are not held, or all there are, least recently used first, int64."""
        found = [np.empty(0, dtype=np.int64)]
        while wanted > 0 and self._used and not self.is_held(self._used[0][0], planned):
            rows = self._last_used_by(*self._used.popleft())
            found.append(rows[:wanted].astype(np.int64))
            if rows.size > wanted:
                self._used.appendleft((int(self._newest_use[rows[0]]), rows[wanted:]))
            wanted -= found[-1].size
        return np.concatenate(found)

    def _last_used_by(self, number: int, rows: NDArray[np.integer]) -> NDArray[np.integer]:
        """Those of a batch's rows that no later batch uses; the others are, or will be, in a later batch's list."""
        last: NDArray[np.integer] = rows[self._newest_use[rows] == number]
        return last

    def _drop_stale(self) -> None:
        """Shorten the lists where they have more than twice as many rows as the cache."""
        if sum(rows.size for _, rows in self._used) > 2 * self._count_in:
            shorter = ((number, self._last_used_by(number, rows)) for number, rows in self._used)
            self._used = deque((number, rows) for number, rows in shorter if rows.size)
        self._list_bytes = max(self._list_bytes, sum(rows.nbytes for _, rows in self._used))

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        size = super().size()
        return PlannerSize(
            size.state_bytes + self._newest_use.nbytes + self._is_in.nbytes,
            size.window_bytes + self._list_bytes,
            size.shared_slots,
            size.private_slots,
        )
