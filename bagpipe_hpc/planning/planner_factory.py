"""How the planners of a run are made: which implementation, and which tables' state is an array or a hash table."""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.schema import MOST_TRAINERS, KernelsConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.planning.lookahead import LookaheadPlanner
from bagpipe_hpc.planning.native import NativePlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window

log = logging.getLogger(__name__)

_DENSE_BYTES = 8
"""State of a row in an array over all rows of its table."""
_REFERENCE_BYTES = 12
"""State of a row in the reference planner."""
_VERSION_BYTES = 4
"""Of a row whose version is known."""
_NARROW_ROWS = 1 << 16
"""Rows of a table in one batch that an index of 2 bytes can name."""
_BATCH_BYTES = 64
"""What the window takes for a batch of no samples, at least."""
_SPARSE_BYTES = 46
"""The most that a row in the window takes in a hash table: 16 bytes, more than a third of which are in use."""


@dataclass(frozen=True)
class PlannerFactory:
    """What all planners of a run have in common.

    Attributes:
        table_offsets: first row of each table and the number of all rows, int64 `[tables + 1]`; column f of a batch has
            rows of table f alone.
        trainers: number of trainers.
        batch_size: most samples of a batch.
        is_native: whether the native planner runs, or the NumPy one.
        state: `kernels.planner_state`.
        threads: threads of the native planner.
        verify: put the expected version of every row into the plans.
    """

    table_offsets: NDArray[np.int64]
    trainers: int
    batch_size: int
    is_native: bool
    state: str = "auto"
    threads: int = 1
    verify: bool = False

    @classmethod
    def choose(
        cls,
        table_offsets: NDArray[np.int64],
        trainers: int,
        batch_size: int,
        kernels: KernelsConfig,
        *,
        verify: bool,
    ) -> "PlannerFactory":
        """The recipe for the settings of a run, which is told in the log.

        Raises:
            ConfigError: the settings ask for what the implementation that they choose does not have.
        """
        is_native = use_native(kernels.backend, "planner")
        if not is_native and kernels.planner_state == "sparse":
            raise ConfigError(
                "kernels.planner_state = 'sparse': only the native planner has it, and the reference one runs; build "
                "the native one (`make setup`) and leave kernels.backend at its default, or use planner_state=auto"
            )
        if is_native and trainers > MOST_TRAINERS:
            raise ConfigError(f"{trainers} trainers: the native planner has {MOST_TRAINERS} at most; use fewer")
        return cls(
            table_offsets, trainers, batch_size, is_native, kernels.planner_state, kernels.planner_threads, verify
        )

    def build(self, window: Window, shared_capacity: int = UNLIMITED, private_capacity: int = UNLIMITED) -> Planner:
        """A new planner: see `LookaheadPlanner` for the arguments."""
        if not self.is_native:
            total_rows = int(self.table_offsets[-1])
            return LookaheadPlanner(
                total_rows, self.trainers, window, shared_capacity, private_capacity, verify=self.verify
            )
        return NativePlanner(
            self.table_offsets,
            self.trainers,
            window,
            shared_capacity,
            private_capacity,
            sparse=self.sparse_tables(window),
            threads=self.threads,
            verify=self.verify,
        )

    def least_bytes(self, window: Window, most_batches: int) -> int:
        """Memory that a planner takes for sure: arrays over whole tables, and the look-ups of a full window.

        Args:
            window: as for `build`.
            most_batches: of a segment; a window never holds more.
        """
        table_rows = np.diff(self.table_offsets)
        versions = _VERSION_BYTES if self.verify else 0
        look_ups = min(window.lookahead, most_batches) * self.batch_size * len(table_rows)
        if not self.is_native:
            index_bytes = 4 if table_rows.sum() < 1 << 31 else 8
            return int(table_rows.sum()) * (_REFERENCE_BYTES + versions) + index_bytes * look_ups
        of_arrays = int(table_rows[~self.sparse_tables(window)].sum()) * (_DENSE_BYTES + versions)
        is_wide = min(int(table_rows.max()), self.batch_size) > _NARROW_ROWS
        return of_arrays + (4 if is_wide else 2) * look_ups + window.lookahead * _BATCH_BYTES

    def sparse_tables(self, window: Window) -> NDArray[np.bool_]:
        """Of which tables only the rows in the window are kept, bool `[tables]`.

        An array is faster. With `auto` a table has a hash table instead where that is smaller, even if every look-up in
        the window is to another row.
        """
        table_rows = np.diff(self.table_offsets)
        if self.state != "auto":
            return np.full(table_rows.shape, self.state == "sparse")
        rows_in_window = window.lookahead * self.batch_size
        sparse: NDArray[np.bool_] = table_rows * _DENSE_BYTES > rows_in_window * _SPARSE_BYTES
        return sparse
