"""The native planner (`csrc/planner.cpp`) as a class: arrays in, arrays out.

`planning.lookahead.native` makes plans of them.
"""

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import SharedPlan, TrainerPlan

_WRONG_BATCH, _SLOTS_USED_UP, _OUT_OF_MEMORY = 1, 2, 3
_NOT_WRITTEN = -1
_INT, _NUMBER, _POINTER = ctypes.c_int64, ctypes.c_uint32, ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "create": (_INT, (_POINTER, _POINTER, _INT, _POINTER, _INT, _INT, _INT, _POINTER, _POINTER)),
    "destroy": (None, (_POINTER,)),
    "start_segment": (None, (_POINTER, _INT)),
    "load": (_INT, (_POINTER, _POINTER, _INT, _POINTER, _INT, _INT, _POINTER, _POINTER)),
    "decide": (_INT, (_POINTER, _POINTER, _INT, _INT, _INT, _POINTER, _POINTER)),
    "measure_plan": (_INT, (_POINTER, _NUMBER, _POINTER, _POINTER, _POINTER)),
    "write_plan": (_INT, (_POINTER, _NUMBER, _POINTER, _INT, _POINTER)),
    "measure_closing_plan": (_INT, (_POINTER, _INT, _POINTER, _POINTER)),
    "write_closing_plan": (_INT, (_POINTER, _POINTER, _POINTER)),
    "free_slots": (_INT, (_POINTER, _INT, _POINTER)),
    "sizes": (None, (_POINTER, _POINTER)),
    "times": (None, (_POINTER, _INT, _POINTER)),
}
"""Result and arguments of each function of the library, whose names begin with `bagpipe_planner_`."""

EXCHANGED = ("exchange", "copy_slots", "lent_slots", "summed_slots", "sum_places", "sent_slots")
"""Further arrays of a `TrainerPlan` where rows have homes."""


class WrongBatchError(Exception):
    """A row does not belong to its feature's table, or the offsets of bags are unsound."""


class SlotsUsedUpError(Exception):
    """More slots are needed than there are.

    Attributes:
        pool: 0 for shared slots, 1 + t for the private ones of trainer t.
        needed: how many would be in use.
    """

    def __init__(self, pool: int, needed: int) -> None:
        super().__init__(f"{needed} of pool {pool}")
        self.pool = pool
        self.needed = needed


class PlanSizes(NamedTuple):
    """How large a plan is.

    Attributes:
        shared: lengths of the arrays of its `SharedPlan`, int64 `[arrays]`.
        trainers: lengths of the arrays of each trainer's `TrainerPlan`, int64 `[T, arrays]`: those that are not
            optional, then those of `EXCHANGED`, where rows have homes and this is no closing plan.
        unique_rows: of the batch.
        fetched_rows: how many of them are fetched.
    """

    shared: NDArray[np.int64]
    trainers: NDArray[np.int64]
    unique_rows: int
    fetched_rows: int


class Decision(NamedTuple):
    """What is decided on a batch.

    Attributes:
        number: names the batch in calls of the planner, uint32.
        free_group: the newest group whose slots were taken back; the batch's fetches wait for that group.
    """

    number: int
    free_group: int


class TeamTimes(NamedTuple):
    """Processor time of a planner's threads for the work that they shared so far.

    Attributes:
        rounds: pieces of work.
        first_s: of the thread that calls the planner.
        slowest_s: of the thread that took the most for a piece, summed over pieces: what they take where each
            thread has an idle core.
        all_s: of all threads.
    """

    rounds: int
    first_s: float
    slowest_s: float
    all_s: float


class _Failure(ctypes.Structure):
    _fields_ = (("details", _INT * 2), ("message", ctypes.c_char * 112))


@cache
def _library() -> ctypes.CDLL:
    library = shared_library.load("planner")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"bagpipe_planner_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class PlannerCore:
    """Handle of a native planner. Calls release the GIL; one thread at a time may make them, but for these cases.

    While a batch is decided, another thread may `load` the first batch after its window. And as many others as
    `writing_threads` may write the plans of batches before it: for each, `measure_plan` and then `write_plan`. The
    plans do not depend on it.

    Every method may raise `MemoryError`. After an error of `load` or `decide` plans of batches that were decided before
    may still be written; apart from that the planner is of no use after any error.

    Args:
        tables: int64 `[tables, 3]`: first row, rows, and 1 to keep only rows in the window or 0 for an array over all.
        feature_tables: the table of each feature, int64 `[F]`; empty if batches may have any number of features, all of
            the only table.
        trainers: number of trainers T, at most `MOST_TRAINERS` (`config.sections.execution`).
        lookahead: window L.
        shared_capacity: shared slots.
        private_capacity: private slots of each trainer.
        first_private_slot: number of the first of them.
        threads: threads that share out the work.
        loading_threads: how many of them do nothing but load batches, fewer than all; 0: all do everything.
        writing_threads: how many of them do nothing but write plans, each its own, where rows have homes; 0: those that
            decide write.
        verify: keep the version of each row.
        grid_columns: each row has one home (`planning.lookahead.home_rules`), and rows travel over a grid of trainers
            with so many columns, a divisor of T; 0 if rows are replicated.

    Raises:
        ConfigError: the library was not built or does not load.
    """

    def __init__(
        self,
        tables: NDArray[np.int64],
        feature_tables: NDArray[np.int64],
        trainers: int,
        lookahead: int,
        shared_capacity: int,
        private_capacity: int,
        first_private_slot: int,
        *,
        threads: int,
        verify: bool,
        grid_columns: int = 0,
        loading_threads: int = 0,
        writing_threads: int = 0,
    ) -> None:
        self._planner = ctypes.c_void_p()
        failure = _Failure()
        self._trainers = trainers
        self._exchanged = len(EXCHANGED) if grid_columns else 0
        tables = np.ascontiguousarray(tables, dtype=np.int64)
        slots = (shared_capacity, private_capacity, first_private_slot)
        settings = np.asarray([trainers, lookahead, *slots, threads, loading_threads, writing_threads], dtype=np.int64)
        status = _library().bagpipe_planner_create(
            settings.ctypes.data,
            tables.ctypes.data,
            len(tables),
            feature_tables.ctypes.data,
            len(feature_tables),
            verify,
            grid_columns,
            ctypes.byref(self._planner),
            ctypes.byref(failure),
        )
        _check(status, failure)

    def __del__(self) -> None:
        if self._planner:
            _library().bagpipe_planner_destroy(self._planner)

    def start_segment(self, *, training: bool) -> None:
        """Forget the batches that are loaded; no row is resident now."""
        _library().bagpipe_planner_start_segment(self._planner, training)

    def load(self, rows: Bags, slices: NDArray[np.int64]) -> None:
        """Take the next batch into the window.

        Args:
            rows: global rows, fewer than 2^31.
            slices: first sample of each trainer's slice and the end of the last, int64 `[T + 1]`.

        Raises:
            WrongBatchError: a row does not belong to its feature's table, or the bags are not sound.
        """
        failure = _Failure()
        values: NDArray[np.int64] = np.ascontiguousarray(rows.values, dtype=np.int64)
        offsets = None if rows.offsets is None else np.ascontiguousarray(rows.offsets, dtype=np.int64)
        status = _library().bagpipe_planner_load(
            self._planner,
            values.ctypes.data,
            values.size,
            None if offsets is None else offsets.ctypes.data,
            rows.samples,
            rows.features,
            slices.ctypes.data,
            ctypes.byref(failure),
        )
        _check(status, failure)

    def decide(
        self, free_group: int, latest_group: int, retiring_group: int, write_group: int | None = None
    ) -> Decision:
        """Take the slots of groups up to `free_group` back, then decide on the oldest batch of the window.

        Args:
            free_group: newest group that is retired before the batch is fetched in any case.
            latest_group: newest group that the batch's fetches may wait for where slots are lacking.
            retiring_group: group that the batch's dead rows leave with.
            write_group: newest group that the batch's plan writes back, 0 for none; None if no plan is written.

        Raises:
            SlotsUsedUpError: there are not enough slots.
        """
        failure, freed, number = _Failure(), ctypes.c_int64(free_group), ctypes.c_uint32()
        status = _library().bagpipe_planner_decide(
            self._planner,
            ctypes.byref(freed),
            latest_group,
            retiring_group,
            _NOT_WRITTEN if write_group is None else write_group,
            ctypes.byref(number),
            ctypes.byref(failure),
        )
        _check(status, failure)
        return Decision(number.value, freed.value)

    def measure_plan(self, number: int) -> PlanSizes:
        """Sizes of the plan of a decided batch."""
        failure, counts = _Failure(), np.empty(2, dtype=np.int64)
        lengths, each = self._lengths(is_closing=False)
        status = _library().bagpipe_planner_measure_plan(
            self._planner, number, lengths.ctypes.data, counts.ctypes.data, ctypes.byref(failure)
        )
        _check(status, failure)
        return PlanSizes(*each, *counts.tolist())

    def write_plan(self, number: int, addresses: NDArray[np.intp], step: int = 0) -> None:
        """Fill the arrays of the plan of a decided batch, which was measured.

        Args:
            number: of the batch.
            addresses: of arrays of the lengths that `measure_plan` gave: the shared ones, then trainer after trainer.
            step: training step that updates the rows, 0 for none.
        """
        failure = _Failure()
        status = _library().bagpipe_planner_write_plan(
            self._planner, number, addresses.ctypes.data, step, ctypes.byref(failure)
        )
        _check(status, failure)

    def measure_closing_plan(self, write_group: int) -> PlanSizes:
        """Sizes of a plan that only writes back: groups up to `write_group`, 0 for none."""
        failure = _Failure()
        lengths, each = self._lengths(is_closing=True)
        status = _library().bagpipe_planner_measure_closing_plan(
            self._planner, write_group, lengths.ctypes.data, ctypes.byref(failure)
        )
        _check(status, failure)
        return PlanSizes(*each, 0, 0)

    def write_closing_plan(self, addresses: NDArray[np.intp]) -> None:
        """Fill the arrays of the plan that `measure_closing_plan` measured; `addresses` as for `write_plan`."""
        failure = _Failure()
        status = _library().bagpipe_planner_write_closing_plan(
            self._planner, addresses.ctypes.data, ctypes.byref(failure)
        )
        _check(status, failure)

    def free_slots(self, group: int) -> None:
        """Take the slots of groups up to `group` back."""
        failure = _Failure()
        _check(_library().bagpipe_planner_free_slots(self._planner, group, ctypes.byref(failure)), failure)

    def sizes(self) -> tuple[int, int, int, int]:
        """Bytes of the per-row state and of the window; peaks of the shared and of the greediest private pool."""
        sizes = np.empty(4, dtype=np.int64)
        _library().bagpipe_planner_sizes(self._planner, sizes.ctypes.data)
        state_bytes, window_bytes, shared_peak, private_peak = sizes.tolist()
        return state_bytes, window_bytes, shared_peak, private_peak

    def times(self, *, loading: bool = False) -> TeamTimes:
        """Processor time of its threads, without what the calling thread does between two pieces of work.

        Args:
            loading: of the threads that only load; if not, of those that decide, and that write where no others do.
        """
        times = np.empty(4, dtype=np.int64)
        _library().bagpipe_planner_times(self._planner, loading, times.ctypes.data)
        rounds, *nanoseconds = times.tolist()
        return TeamTimes(rounds, *(time * 1e-9 for time in nanoseconds))

    def _lengths(self, *, is_closing: bool) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Room for the lengths of a plan's arrays; and views of it: of the shared part, and of the trainers' parts."""
        shared = len(SharedPlan.ARRAYS)
        each = len(TrainerPlan.ARRAYS) + (0 if is_closing else self._exchanged)
        lengths = np.empty(shared + self._trainers * each, dtype=np.int64)
        return lengths, (lengths[:shared], lengths[shared:].reshape(self._trainers, each))


def _check(status: int, failure: _Failure) -> None:
    """Raise what a call failed with."""
    if status == _WRONG_BATCH:
        raise WrongBatchError
    if status == _SLOTS_USED_UP:
        raise SlotsUsedUpError(*failure.details)
    if status == _OUT_OF_MEMORY:
        raise MemoryError("the native planner found no more memory")
    if status:
        raise RuntimeError(f"the native planner failed: {failure.message.decode()}")
