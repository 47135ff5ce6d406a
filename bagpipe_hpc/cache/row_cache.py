"""Embedding rows on a trainer's device, addressed by slot.

Legend: `N` rows of one call, `V` look-ups, `O` outputs, `D` embedding width, `W` numbers of a record.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.cache.row_decay import RowDecay
from bagpipe_hpc.cache.row_memory import new_table
from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.kernels.device import open_device
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.row_operations import RowOperations
from bagpipe_hpc.kernels.rows.sum_order import SumOrder
from bagpipe_hpc.rows.optimizers.contract import RowOptimizer
from bagpipe_hpc.rows.record import RowRecord

_MOST_SLOTS = int(np.iinfo(np.int32).max)
NO_ROW = -1
"""The row number of slots to which no row was fetched: those of copies of rows that live at another trainer."""
ROW_NUMBER_BYTES = 8
"""Bytes of the note that says which row a slot holds, on the rows' device."""


def require_slots(slots: int) -> None:
    """Check that a cache may have so many slots.

    Raises:
        CapacityError: plans cannot number so many.
    """
    if slots > _MOST_SLOTS:
        raise CapacityError(
            f"{slots} rows in one cache are more than the {_MOST_SLOTS} that slots can number: set a smaller "
            "cache.rows, lookahead.batches or train.batch_size (a one-rank run holds all tables: use more ranks)"
        )


class RowCache:
    """Slots with weights, optimizer state and, where rows are verified, the step that last updated them.

    It holds no map from rows to slots: the oracle's plans speak of slots. Which row a slot holds is noted for messages
    alone. The compute thread and the mover may use it at the same time, because the plan keeps the slots that they
    touch apart.

    Args:
        slots: number of slots.
        record: the numbers of a row. Versions are exact up to step 2**24.
        operations: row operations on `device`.
        device: where the rows are.
        holds_all: slot k is row k of all tables, so that nothing need be noted.
        reserved: slots that take memory once they are used, as for `new_table`.

    Attributes:
        weights: float32 `[slots, D]`.
        state: the parts of the optimizer's state, each float32 `[slots, width]`.
        operations: as given.
        device: how arrays get to the rows and back.

    Raises:
        CapacityError: plans cannot number as many slots.
    """

    def __init__(
        self,
        slots: int,
        record: RowRecord,
        operations: RowOperations,
        device: torch.device,
        *,
        holds_all: bool = False,
        reserved: Sequence[range] = (),
    ) -> None:
        require_slots(slots)
        self.operations = operations
        self.device = open_device(device)
        self._held = slots - sum(map(len, reserved))
        self.weights = new_table(slots, record.embedding_dim, device, reserved=reserved)
        self.state = [new_table(slots, width, device, reserved=reserved) for width in record.state_widths]
        self._versions = new_table(slots, 1, device, reserved=reserved) if record.has_version else None
        self._columns = [self.weights, *self.state, *([] if self._versions is None else [self._versions])]
        # From 1, so that the zeros of a new table say that there is none.
        self._rows = None if holds_all else new_table(slots, 1, device, torch.int64, reserved)[:, 0]

    @property
    def width(self) -> int:
        """Numbers D of a row."""
        return self.weights.shape[1]

    @property
    def bytes(self) -> int:
        """Memory of all slots but the reserved ones."""
        return self._held * sum(part.itemsize * part.shape[1] for part in self._columns)

    @property
    def trained_columns(self) -> list[Tensor]:
        """What updates change: the weights and the parts of the optimizer's state."""
        return [self.weights, *self.state]

    def rows_in(self, slots: Tensor) -> Tensor:
        """Global rows that slots hold, int32 `[N]` to int64 `[N]`."""
        return slots.long() if self._rows is None else self._rows.index_select(0, slots) + NO_ROW

    @property
    def numbers(self) -> Tensor | None:
        """What `rows_in` reads: int64 `[slots]`, global rows less `NO_ROW`; None where slot k is row k."""
        return self._rows

    def look_up(self, slots: Tensor, positions: Tensor, pool: PoolLayout | None = None) -> Tensor:
        """Weights of look-ups, one by one or added up.

        Args:
            slots: int32 `[U]`.
            positions: of the look-ups, indices into `slots`, int32 `[V]`.
            pool: which look-ups are added up to which output; None for one output each.

        Returns:
            Float32 `[O, D]`.
        """
        if pool is None:
            return self.operations.gather_look_ups(self.weights, slots, positions)
        return self.operations.pool(self.weights, slots, positions, pool)

    def sum_gradients(
        self,
        gradients: Tensor,
        positions: Tensor,
        rows: int,
        order: SumOrder | None = None,
        pool: PoolLayout | None = None,
    ) -> Tensor:
        """Sum what comes back to each row.

        Args:
            gradients: of what `look_up` gave, float32 `[O, D]`.
            positions: as there.
            rows: number of distinct rows U.
            order: what `RowOperations.order_look_ups` gave for these positions, if it was asked.
            pool: as there.

        Returns:
            Float32 `[U, D]`.
        """
        if pool is None:
            return self.operations.sum_by_position(gradients, positions, rows, order)
        return self.operations.sum_pooled(gradients, positions, rows, order, pool)

    def gather(self, slots: Tensor) -> Tensor:
        """Weights of slots, which may repeat: int32 `[N]` to float32 `[N, D]`."""
        return self.operations.gather(self.weights, slots)

    def update(
        self,
        optimizer: RowOptimizer,
        slots: Tensor,
        gradients: Tensor,
        step: int,
        clip_norm: float = 0.0,
        decay: RowDecay | None = None,
    ) -> None:
        """Update distinct rows by their gradients; arguments as for `update_rows`."""
        update_rows(self.operations, optimizer, self.weights, self.state, slots, gradients, step, clip_norm, decay)

    def gather_records(self, slots: Tensor) -> NDArray[np.float32]:
        """Whole records for a write-back: distinct slots int32 `[N]` to float32 `[N, W]` on the host."""
        return self.device.to_host(self.operations.gather_records(self._columns, slots))

    def scatter(self, slots: Tensor, records: NDArray[np.float32], rows: NDArray[np.int64] | None = None) -> None:
        """Put fetched records into distinct slots.

        Args:
            slots: int32 `[N]`.
            records: float32 `[N, W]`.
            rows: their global rows, int64 `[N]`, where they are noted.
        """
        self.operations.scatter_records(self._columns, slots, self.device.to_device(records))
        if self._rows is not None and rows is not None:
            self._rows.index_copy_(0, slots.long(), self.device.to_device(rows) - NO_ROW)

    @property
    def copy_width(self) -> int:
        """Numbers of a copy that another trainer reads: the weights and, where it is kept, the version."""
        return sum(column.shape[1] for column in self._copied_columns)

    @property
    def _copied_columns(self) -> list[Tensor]:
        return [self.weights, *([] if self._versions is None else [self._versions])]

    def copies_of(self, slots: Tensor) -> NDArray[np.float32]:
        """What others read of rows that live here: slots int32 `[N]` to float32 `[N, copy_width]` on the host."""
        return self.device.to_host(self.operations.gather_records(self._copied_columns, slots))

    def keep_copies(self, slot: int, copies: NDArray[np.float32]) -> None:
        """Put copies, float32 `[N, copy_width]`, into as many slots from `slot` on."""
        values, first = self.device.to_device(copies), 0
        for column in self._copied_columns:
            column[slot : slot + len(copies)] = values[:, first : first + column.shape[1]]
            first += column.shape[1]

    def versions(self, slots: Tensor) -> Tensor:
        """Versions of slots, int64 `[N]`; only where versions are kept."""
        assert self._versions is not None, "versions are kept with debug.verify_rows only"
        return self.operations.gather(self._versions, slots)[:, 0].long()

    def set_version(self, slots: Tensor, step: int) -> None:
        """Note the step that updated slots; does nothing where versions are not kept."""
        if self._versions is not None:
            self._versions[slots.long()] = float(step)
