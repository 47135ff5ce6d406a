"""Row operations of `_cuda.so` (csrc/cuda_*.cu) on one GPU, on torch's current stream: no copies, no waiting.

Legend as in `row_operations`.
"""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int32, c_int64, c_void_p
from functools import partial

import torch
from torch import Tensor

from bagpipe_hpc.kernels.pooling import PoolLayout, pool_step_by_step, sum_pooled_step_by_step
from bagpipe_hpc.kernels.sum_order import SumOrder
from bagpipe_hpc.kernels.update_kernels import UPDATE_KERNELS, UpdateKernel

_TABLE = (c_void_p, c_int32)
_ROWS = (c_void_p, c_void_p, c_int64)
_SIGNATURES: dict[str, tuple[type, ...]] = {
    "gather_records": (c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_void_p),
    "scatter_records": (c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_void_p),
    "gather_look_ups": (*_TABLE, c_void_p, c_void_p, c_int64, c_void_p),
    "sum_segments": (*_TABLE, c_void_p, c_void_p, c_int64, c_void_p),
} | {
    f"apply_{name}": (*(c_void_p,) * len(kernel.per_weight), *_TABLE, *_ROWS, *(c_float,) * kernel.numbers)
    for name, kernel in UPDATE_KERNELS.items()
    if kernel.has_cuda
}
"""Arguments after device and stream, as in csrc/cuda_row_operations.h."""

_MOST_TABLES = 4
"""Of a record that one kernel gathers or scatters, `kMostParts` there; a record of more takes one for each table."""
_WIDEST_ROWWISE = 8192
"""Numbers of a row that `apply_rowwise_adagrad` keeps in shared memory."""


class CudaRowOperations:
    """`RowOperations` on one GPU, where the methods are described; slots and positions are not checked.

    Args:
        library: `_cuda.so`.
        device: the GPU, torch's current one where it has no number; every tensor must be on it.
        current_stream: the CUDA stream that the calling thread puts work on; torch's unless given.
    """

    def __init__(
        self, library: ctypes.CDLL, device: torch.device, current_stream: Callable[[], int] | None = None
    ) -> None:
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._device = device
        self._current_stream = current_stream or (lambda: int(torch.cuda.current_stream(device).cuda_stream))
        self._error_text = library.bagpipe_error_text
        self._error_text.argtypes, self._error_text.restype = (ctypes.c_int,), ctypes.c_char_p
        self._functions = {name: _typed(library, name) for name in _SIGNATURES}

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """A kernel with a thread for several numbers of a row."""
        return self.gather_records([table], slots)

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """In one pass, without a list of slots in between."""
        rows = table.new_empty(positions.numel(), table.shape[1])
        if rows.numel():
            arguments = (self._floats(table), table.shape[1], self._integers(slots), self._integers(positions))
            self._call("gather_look_ups", *arguments, len(rows), self._floats(rows))
        return rows

    def gather_records(self, columns: Sequence[Tensor], slots: Tensor) -> Tensor:
        """One kernel for all tables."""
        if len(columns) > _MOST_TABLES:
            return torch.cat([self.gather(part, slots) for part in columns], dim=1)
        records = columns[0].new_empty(slots.numel(), sum(part.shape[1] for part in columns))
        if records.numel():
            tables = self._tables(columns)
            self._call("gather_records", *tables, self._integers(slots), len(records), self._floats(records))
        return records

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """One kernel for all tables."""
        widths = [part.shape[1] for part in columns]
        _require(records.shape == (slots.numel(), sum(widths)), "records", records)
        if len(columns) > _MOST_TABLES:
            for part, values in zip(columns, torch.split(records, widths, dim=1), strict=True):
                self.scatter_records([part], slots, values.contiguous())
            return
        if records.numel():
            tables = self._tables(columns)
            self._call("scatter_records", *tables, self._integers(slots), len(records), self._floats(records))

    def order_look_ups(self, positions: Tensor, count: int) -> SumOrder:
        """The look-ups sorted by position, so that each sum is of neighbours."""
        self._integers(positions)
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
            self._call("sum_segments", self._floats(gradients), width, *places, self._floats(sums))
        return sums

    def pool(self, table: Tensor, slots: Tensor, positions: Tensor, layout: PoolLayout) -> Tensor:
        """Step by step: all rows are gathered, then scaled, then summed as neighbours."""
        return pool_step_by_step(self, table, slots, positions, layout)

    def sum_pooled(
        self, gradients: Tensor, positions: Tensor, count: int, order: SumOrder | None, layout: PoolLayout
    ) -> Tensor:
        """Step by step; `order` is needed as in `sum_by_position`."""
        return sum_pooled_step_by_step(self, gradients, positions, count, order, layout)

    def update_kernel(self, name: str) -> UpdateKernel | None:
        """The kernel of this formula, where it has one for GPUs; row-wise Adagrad is for rows up to 8192 wide."""
        kernel = UPDATE_KERNELS.get(name)
        return partial(self._update, name) if kernel and kernel.has_cuda else None

    def _update(
        self,
        name: str,
        weights: Tensor,
        state: Sequence[Tensor],
        slots: Tensor,
        gradients: Tensor,
        numbers: Sequence[float],
    ) -> None:
        _require(name != "rowwise_adagrad" or weights.shape[1] <= _WIDEST_ROWWISE, "weights", weights)
        shapes = UPDATE_KERNELS[name].state_shapes(*weights.shape)
        for place, (part, shape) in enumerate(zip(state, shapes, strict=True)):
            _require(part.shape == shape, f"state[{place}]", part)
        _require(gradients.shape == (slots.numel(), weights.shape[1]), "gradients", gradients)
        if gradients.numel():
            tables = [self._floats(table) for table in (weights, *state)]
            rows = (self._integers(slots), self._floats(gradients), len(gradients))
            self._call(f"apply_{name}", *tables, weights.shape[1], *rows, *numbers)

    def _tables(self, columns: Sequence[Tensor]) -> tuple[object, object, int]:
        """Addresses and widths of some tables, as C arrays."""
        addresses = (c_void_p * len(columns))(*(self._floats(part) for part in columns))
        widths = (c_int32 * len(columns))(*(part.shape[1] for part in columns))
        return addresses, widths, len(columns)

    def _floats(self, numbers: Tensor) -> int:
        return self._address(numbers, torch.float32)

    def _integers(self, numbers: Tensor) -> int:
        return self._address(numbers, torch.int32)

    def _address(self, tensor: Tensor, dtype: torch.dtype) -> int:
        if tensor.device != self._device or tensor.dtype != dtype or not tensor.is_contiguous():
            raise ValueError(
                f"a row operation on {self._device} needs a contiguous {dtype} tensor there, but got "
                f"{tensor.dtype} {list(tensor.shape)} with strides {tensor.stride()} on {tensor.device}"
            )
        return tensor.data_ptr()

    def _call(self, name: str, *arguments: object) -> None:
        code = self._functions[name](self._device.index or 0, self._current_stream(), *arguments)
        if code:
            raise RuntimeError(f"CUDA could not start {name} on {self._device}: {self._error_text(code).decode()}")


def _typed(library: ctypes.CDLL, name: str) -> Callable[..., int]:
    function = library[f"bagpipe_{name}"]
    function.argtypes = (ctypes.c_int, c_void_p, *_SIGNATURES[name])
    function.restype = ctypes.c_int
    return function


def _require(condition: bool, name: str, tensor: Tensor) -> None:
    if not condition:
        raise ValueError(f"{name}: shape {list(tensor.shape)} does not fit the other arguments")
