"""Row operations of `_cuda.so` (csrc/cuda_*.cu) on one GPU, on torch's current stream: no copies, no waiting.

Legend as in `row_operations`.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float, c_int32, c_int64, c_void_p
from functools import partial

import torch
from torch import Tensor

from bagpipe_hpc.kernels.cuda_calls import MOST_TABLES, CudaCalls
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.sum_order import SumOrder
from bagpipe_hpc.kernels.rows.update_kernels import UPDATE_KERNELS, UpdateKernel

_TABLE = (c_void_p, c_int32)
_LOOK_UPS = (c_void_p, c_void_p, c_void_p)
_ROWS = (c_void_p, c_void_p, c_int64)
_SIGNATURES: Mapping[str, tuple[type, ...]] = {
    "gather_records": (c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_void_p),
    "scatter_records": (c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_void_p),
    "gather_look_ups": (*_TABLE, c_void_p, c_void_p, c_int64, c_void_p),
    "sum_segments": (*_TABLE, c_void_p, c_void_p, c_int64, c_void_p),
    "pool": (*_TABLE, *_LOOK_UPS, c_void_p, c_int64, c_void_p),
    "sum_pooled": (*_TABLE, *_LOOK_UPS, c_void_p, c_int64, c_void_p),
} | {
    f"apply_{name}": (*(c_void_p,) * len(kernel.per_weight), *_TABLE, *_ROWS, *(c_float,) * kernel.numbers)
    for name, kernel in UPDATE_KERNELS.items()
}
"""Arguments after device and stream, as in csrc/cuda_row_operations.h."""

_WIDEST_ROWWISE = 8192
"""Widest rows for row-wise updates, which keep a row's numbers in shared memory."""


class CudaRowOperations:
    """`RowOperations`, which describes the methods, on one GPU.

    Slots, positions and the indices of a `PoolLayout` are not checked.

    Args:
        library: `_cuda.so`.
        device: as for `CudaCalls`.
        current_stream: as for `CudaCalls`.
    """

    def __init__(
        self, library: ctypes.CDLL, device: torch.device, current_stream: Callable[[], int] | None = None
    ) -> None:
        self._cuda = CudaCalls(library, device, current_stream, _SIGNATURES)

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """A kernel with a thread for several numbers of a row."""
        return self.gather_records([table], slots)

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """In one pass, without a list of slots in between."""
        rows = table.new_empty(positions.numel(), table.shape[1])
        if rows.numel():
            arguments = (
                self._cuda.floats(table),
                table.shape[1],
                self._cuda.integers(slots),
                self._cuda.integers(positions),
            )
            self._cuda.call("gather_look_ups", *arguments, len(rows), self._cuda.floats(rows))
        return rows

    def gather_records(self, columns: Sequence[Tensor], slots: Tensor) -> Tensor:
        """One kernel for all tables."""
        if len(columns) > MOST_TABLES:
            return torch.cat([self.gather(part, slots) for part in columns], dim=1)
        records = columns[0].new_empty(slots.numel(), sum(part.shape[1] for part in columns))
        if records.numel():
            tables = self._cuda.tables(columns)
            self._cuda.call(
                "gather_records", *tables, self._cuda.integers(slots), len(records), self._cuda.floats(records)
            )
        return records

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """One kernel for all tables."""
        widths = [part.shape[1] for part in columns]
        _require(records.shape == (slots.numel(), sum(widths)), "records", records)
        if len(columns) > MOST_TABLES:
            for part, values in zip(columns, torch.split(records, widths, dim=1), strict=True):
                self.scatter_records([part], slots, values.contiguous())
            return
        if records.numel():
            tables = self._cuda.tables(columns)
            self._cuda.call(
                "scatter_records", *tables, self._cuda.integers(slots), len(records), self._cuda.floats(records)
            )

    def order_look_ups(self, positions: Tensor, count: int) -> SumOrder:
        """The look-ups sorted by position, so that each sum is of neighbours."""
        self._cuda.integers(positions)
        return SumOrder.of(positions, count)

    def sum_by_position(
        self, gradients: Tensor, positions: Tensor, count: int, order: SumOrder | None = None
    ) -> Tensor:
        """Sum neighbours in order; without `order`, which takes about as long as the sums, it is made first."""
        _require(len(gradients) == positions.numel() < 1 << 31, "gradients", gradients)
        width = gradients.shape[1]
        sums = gradients.new_empty(count, width)
        if gradients.numel() == 0:
            return sums.zero_()
        if sums.numel():
            order = order or self.order_look_ups(positions, count)
            places = (order.look_ups.data_ptr(), order.starts.data_ptr(), count)
            self._cuda.call("sum_segments", self._cuda.floats(gradients), width, *places, self._cuda.floats(sums))
        return sums

    def pool(self, table: Tensor, slots: Tensor, positions: Tensor, layout: PoolLayout) -> Tensor:
        """In one pass: no row is in memory between its table and its output."""
        pooled = table.new_empty(layout.outputs_count, table.shape[1])
        _require(len(layout.outputs) == positions.numel() < 1 << 31, "layout.outputs", layout.outputs)
        if pooled.numel():
            rows = (self._cuda.integers(slots), self._cuda.integers(positions), self._scales(layout))
            outputs = (self._cuda.integers(layout.starts), len(pooled), self._cuda.floats(pooled))
            self._cuda.call("pool", self._cuda.floats(table), table.shape[1], *rows, *outputs)
        return pooled

    def sum_pooled(
        self, gradients: Tensor, positions: Tensor, count: int, order: SumOrder | None, layout: PoolLayout
    ) -> Tensor:
        """In one pass, neighbours in order; `order` is needed as in `sum_by_position`."""
        _require(len(gradients) == layout.outputs_count, "gradients", gradients)
        _require(len(layout.outputs) == positions.numel() < 1 << 31, "layout.outputs", layout.outputs)
        width = gradients.shape[1]
        sums = gradients.new_empty(count, width)
        if positions.numel() == 0:
            return sums.zero_()
        if sums.numel():
            order = order or self.order_look_ups(positions, count)
            look_ups = (order.look_ups.data_ptr(), self._cuda.integers(layout.outputs), self._scales(layout))
            places = (order.starts.data_ptr(), count, self._cuda.floats(sums))
            self._cuda.call("sum_pooled", self._cuda.floats(gradients), width, *look_ups, *places)
        return sums

    def _scales(self, layout: PoolLayout) -> int | None:
        if layout.scales is None:
            return None
        _require(layout.scales.shape == layout.outputs.shape, "layout.scales", layout.scales)
        return self._cuda.floats(layout.scales)

    def update_kernel(self, name: str, width: int) -> UpdateKernel | None:
        """The kernel of this formula; row-wise ones are for rows of up to 8192 numbers."""
        kernel = UPDATE_KERNELS.get(name)
        has_kernel = kernel is not None and (all(kernel.per_weight) or width <= _WIDEST_ROWWISE)
        return partial(self._update, name) if has_kernel else None

    def _update(
        self,
        name: str,
        weights: Tensor,
        state: Sequence[Tensor],
        slots: Tensor,
        gradients: Tensor,
        numbers: Sequence[float],
    ) -> None:
        shapes = UPDATE_KERNELS[name].state_shapes(*weights.shape)
        for place, (part, shape) in enumerate(zip(state, shapes, strict=True)):
            _require(part.shape == shape, f"state[{place}]", part)
        _require(gradients.shape == (slots.numel(), weights.shape[1]), "gradients", gradients)
        if gradients.numel():
            tables = [self._cuda.floats(table) for table in (weights, *state)]
            rows = (self._cuda.integers(slots), self._cuda.floats(gradients), len(gradients))
            self._cuda.call(f"apply_{name}", *tables, weights.shape[1], *rows, *numbers)


def _require(condition: bool, name: str, tensor: Tensor) -> None:
    if not condition:
        raise ValueError(f"{name}: shape {list(tensor.shape)} does not fit the other arguments")
