"""Row operations of `_cuda.so` (csrc/cuda_*.cu) on one GPU, on torch's current stream: no copies, no waiting.

Legend as in `row_operations`.
"""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int32, c_int64, c_void_p

import torch
from torch import Tensor

from bagpipe_hpc.kernels.reference import adam_factors
from bagpipe_hpc.kernels.sum_order import SumOrder

_TABLE = (c_void_p, c_int32)
_ROWS = (c_void_p, c_void_p, c_int64)
_SIGNATURES: dict[str, tuple[type, ...]] = {
    "gather_records": (c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_void_p),
    "scatter_records": (c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_void_p),
    "gather_look_ups": (*_TABLE, c_void_p, c_void_p, c_int64, c_void_p),
    "sum_segments": (*_TABLE, c_void_p, c_void_p, c_int64, c_void_p),
    "apply_sgd": (*_TABLE, *_ROWS, c_float),
    "apply_rowwise_adagrad": (c_void_p, *_TABLE, *_ROWS, c_float, c_float),
    "apply_adagrad": (c_void_p, *_TABLE, *_ROWS, c_float, c_float),
    "apply_adam": (c_void_p, c_void_p, *_TABLE, *_ROWS, *[c_float] * 7),
}
"""Arguments after device and stream, as in csrc/cuda_row_operations.h."""

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
        """See `RowOperations`."""
        return self.gather_records([table], slots)

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """See `RowOperations`."""
        rows = table.new_empty(positions.numel(), table.shape[1])
        if rows.numel():
            arguments = (self._floats(table), table.shape[1], self._integers(slots), self._integers(positions))
            self._call("gather_look_ups", *arguments, len(rows), self._floats(rows))
        return rows

    def gather_records(self, columns: Sequence[Tensor], slots: Tensor) -> Tensor:
        """See `RowOperations`."""
        records = columns[0].new_empty(slots.numel(), sum(part.shape[1] for part in columns))
        if records.numel():
            tables = self._tables(columns)
            self._call("gather_records", *tables, self._integers(slots), len(records), self._floats(records))
        return records

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """See `RowOperations`."""
        _require(records.shape == (slots.numel(), sum(part.shape[1] for part in columns)), "records", records)
        if records.numel():
            tables = self._tables(columns)
            self._call("scatter_records", *tables, self._integers(slots), len(records), self._floats(records))

    def order_look_ups(self, positions: Tensor, count: int) -> SumOrder:
        """See `RowOperations`."""
        self._integers(positions)
        return SumOrder.of(positions, count)

    def sum_by_position(
        self, gradients: Tensor, positions: Tensor, count: int, order: SumOrder | None = None
    ) -> Tensor:
        """See `RowOperations`; without `order`, which takes about as long as the sums, it is made first."""
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

    def apply_sgd(self, weights: Tensor, slots: Tensor, gradients: Tensor, lr: float) -> None:
        """See `RowOperations`."""
        self._update("apply_sgd", weights, [], slots, gradients, lr)

    def apply_rowwise_adagrad(
        self, weights: Tensor, accumulator: Tensor, slots: Tensor, gradients: Tensor, lr: float, eps: float
    ) -> None:
        """See `RowOperations`; for rows up to 8192 wide."""
        _require(weights.shape[1] <= _WIDEST_ROWWISE, "weights", weights)
        _require(accumulator.shape == (len(weights), 1), "accumulator", accumulator)
        self._update("apply_rowwise_adagrad", weights, [accumulator], slots, gradients, lr, eps)

    def apply_adagrad(
        self, weights: Tensor, accumulator: Tensor, slots: Tensor, gradients: Tensor, lr: float, eps: float
    ) -> None:
        """See `RowOperations`."""
        _require(accumulator.shape == weights.shape, "accumulator", accumulator)
        self._update("apply_adagrad", weights, [accumulator], slots, gradients, lr, eps)

    def apply_adam(
        self,
        weights: Tensor,
        first: Tensor,
        second: Tensor,
        slots: Tensor,
        gradients: Tensor,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        step: int,
    ) -> None:
        """See `RowOperations`."""
        _require(first.shape == weights.shape, "first", first)
        _require(second.shape == weights.shape, "second", second)
        betas = (beta1, 1 - beta1, beta2, 1 - beta2)
        factors = adam_factors(lr, beta1, beta2, step)
        self._update("apply_adam", weights, [first, second], slots, gradients, *betas, eps, *factors)

    def _update(
        self, name: str, weights: Tensor, state: Sequence[Tensor], slots: Tensor, gradients: Tensor, *numbers: float
    ) -> None:
        _require(gradients.shape == (slots.numel(), weights.shape[1]), "gradients", gradients)
        if gradients.numel():
            tables = [self._floats(table) for table in (weights, *state)]
            rows = (self._integers(slots), self._floats(gradients), len(gradients))
            self._call(name, *tables, weights.shape[1], *rows, *numbers)

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
