"""The planner in C++: the same plans as the rules in NumPy, byte for byte, several times as fast."""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.kernels.native_planner import (
    EXCHANGED,
    PlannerCore,
    PlanSizes,
    SlotsUsedUpError,
    TeamTimes,
    WrongBatchError,
)
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import NO_GROUP, BatchPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.plan.plan_record import EncodedRecords
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.lookahead.planner_threads import ONE_THREAD, ThreadShares
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.slots import UNLIMITED, first_private_slot, slots_used_up
from bagpipe_hpc.planning.sound_rows import require_ascending_bags, require_sound_sizes, wrong_row
from bagpipe_hpc.planning.window import Window


class NativePlanner:
    """The native implementation of `Planner`: its rules are those of `rules` or, with homes, of `home_rules`.

    Args:
        table_offsets: first row of each table and the number of all rows, int64 `[tables + 1]`.
        trainers: number of trainers T.
        window: look-ahead and group.
        shared_capacity: slots below this number mean the same row on every trainer.
        private_capacity: further slots of each trainer that are its own.
        feature_tables: as in `RunFacts`; left out with a single table, batches may have any number of features.
        sparse: of which tables only the rows in the window are kept, bool `[tables]`; default: of none.
        threads: that share out the work. Some may write plans while others decide on later batches (`DraftingPlanner`)
            where rows have homes and are not verified.
        verify: put the expected version of every row into the plans (`debug.verify_rows`).
        homes: each row has one home, and trainers exchange rows over this grid; of the shared slots each of two areas
            for copies has half. Left out: rows are replicated.

    Raises:
        ValueError: the tables' first rows do not ascend, or a feature has none of them: native code would take other
            memory for theirs. Or some threads only write plans, and those need the one before.
    """

    def __init__(
        self,
        table_offsets: NDArray[np.int64],
        trainers: int,
        window: Window,
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
        *,
        feature_tables: Sequence[int] = (),
        sparse: NDArray[np.bool_] | None = None,
        threads: ThreadShares = ONE_THREAD,
        verify: bool = False,
        homes: Grid | None = None,
    ) -> None:
        table_rows = np.diff(table_offsets)
        if table_offsets[0] < 0 or (table_rows < 0).any():
            raise ValueError(f"table_offsets {table_offsets.tolist()}: must be 0 or more, and ascend")
        if threads.writing and not homes:
            raise ValueError("threads.writing: of replicated rows the lists of one batch alone are kept; use 0")
        if threads.writing and verify:
            raise ValueError("threads.writing: with verify a plan needs the versions of the one before it; use 0")
        self.window = window
        self.loads_beside = threads.loading > 0
        self.writing_threads = threads.writing
        self._trainers = trainers
        self._table_offsets = table_offsets
        self._with_homes = homes is not None
        self._capacities = (shared_capacity - shared_capacity % 2 if homes else shared_capacity, private_capacity)
        if not feature_tables and table_rows.size > 1:
            feature_tables = range(table_rows.size)
        self._feature_tables = np.asarray(feature_tables, dtype=np.int64)
        if not ((self._feature_tables >= 0) & (self._feature_tables < table_rows.size)).all():
            raise ValueError(f"feature_tables {tuple(feature_tables)}: there are {table_rows.size} tables, from 0")
        if sparse is None:
            sparse = np.zeros(table_rows.size, dtype=np.bool_)
        self._core = PlannerCore(
            np.stack((table_offsets[:-1], table_rows, sparse), axis=1),
            self._feature_tables,
            trainers,
            window.lookahead,
            shared_capacity,
            private_capacity,
            first_private_slot(shared_capacity),
            threads=threads.total,
            verify=verify,
            grid_columns=homes.columns if homes else 0,
            loading_threads=threads.loading,
            writing_threads=threads.writing,
        )
        self._training = True
        self._first_step = 0
        self._loaded_count = 0
        self._prefetch_after = NO_GROUP
        self._samples: deque[int] = deque()  # of the batches in the window

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """Forget the batches of earlier segments; no row is resident now."""
        self._core.start_segment(training=training)
        self._training = training
        self._first_step = first_step
        self._loaded_count = 0
        self._prefetch_after = NO_GROUP
        self._samples.clear()

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        """Take the next batch into the window.

        Raises:
            DataError: a row is not one of its feature's table, or the bags are not sound.
        """
        if self._feature_tables.size not in (0, rows.features):
            raise DataError(f"a batch of {rows.features} features: there are {self._feature_tables.size}")
        require_sound_sizes(rows)
        slices = np.asarray(slice_bounds(rows.samples, self._trainers) if bounds is None else bounds, dtype=np.int64)
        try:
            self._core.load(rows, slices)
        except WrongBatchError as error:
            require_ascending_bags(rows)
            tables = self._feature_tables if self._feature_tables.size else np.zeros(rows.features, dtype=np.int64)
            raise wrong_row(rows, self._table_offsets[tables], self._table_offsets[tables + 1]) from error
        self._samples.append(rows.samples)
        self._loaded_count += 1

    def decide(self, number: int) -> None:
        """Give slots to what the oldest batch of the window fetches, and take it out of the window."""
        self._decide(number, None)

    def _decide(self, number: int, write_group: int | None) -> tuple[int, int]:
        """The same, where a plan is to be written that writes back groups up to `write_group`.

        Returns:
            By what the batch is told apart; its samples.
        """
        try:
            decision = self._core.decide(
                max(self._prefetch_after, self.window.group_before_prefetch(number)),
                self.window.latest_before_prefetch(number),
                self.window.group_that_retires(number),
                write_group,
            )
        except SlotsUsedUpError as error:
            shared, private = self._capacities
            if error.pool == 0:
                raise slots_used_up("shared", shared, error.needed) from error
            raise slots_used_up(f"private (trainer {error.pool - 1})", private, error.needed) from error
        self._prefetch_after = decision.free_group
        return decision.number, self._samples.popleft()

    def plan(self, number: int) -> BatchPlan:
        """Decide on the oldest batch of the window, and write the decision down."""
        return self.draft(number)()

    def draft(self, number: int) -> Callable[[], BatchPlan]:
        """As `DraftingPlanner.draft`."""
        retire_group = self.window.group_started_by(number)
        decided, samples = self._decide(number, retire_group if self._training else NO_GROUP)
        step = self._first_step + number + 1 if self._training else 0
        prefetch_after = self._prefetch_after

        def write() -> BatchPlan:
            plan, addresses = _allocate(
                self._core.measure_plan(decided),
                EXCHANGED if self._with_homes else (),
                batch=number,
                samples=samples,
                prefetch_after=prefetch_after,
                retire_group=retire_group,
            )
            self._core.write_plan(decided, addresses, step)
            return plan

        return write

    def closing_plan(self) -> BatchPlan:
        """Retire whatever is left."""
        group = self.window.closing_group(self._loaded_count)
        sizes = self._core.measure_closing_plan(group if self._training else NO_GROUP)
        plan, addresses = _allocate(
            sizes, (), batch=self._loaded_count, samples=0, prefetch_after=NO_GROUP, retire_group=group
        )
        self._core.write_closing_plan(addresses)
        self._core.free_slots(self.window.group_that_retires(self._loaded_count))
        return plan

    def size(self) -> PlannerSize:
        """Memory and slots that it took so far."""
        return PlannerSize(*self._core.sizes())

    def times(self, *, loading: bool = False) -> TeamTimes:
        """Processor time of its threads so far: of those that only load, or of those that decide."""
        return self._core.times(loading=loading)


def _allocate(sizes: PlanSizes, exchanged: Sequence[str], **integers: int) -> tuple[BatchPlan, NDArray[np.intp]]:
    """A plan whose arrays are still to be filled, and their addresses, in the order of their lengths."""
    shared = SharedPlan.allocate(
        dict(zip(SharedPlan.ARRAYS, sizes.shared.tolist(), strict=True)),
        unique_rows=sizes.unique_rows,
        fetched_rows=sizes.fetched_rows,
        **integers,
    )
    trainers, addresses = EncodedRecords.allocate(TrainerPlan, sizes.trainers, exchanged)
    of_shared = [array.ctypes.data for array in shared.arrays().values()]
    return BatchPlan(shared, trainers), np.concatenate((of_shared, addresses.ravel()))
