"""Row operations in C++ for rows in main memory (`csrc/row_operations.cpp`): the bits of `reference`, at memory speed.

The legend is that of `row_operations`.
"""

from collections.abc import Callable, Sequence
from ctypes import CDLL, c_float, c_int32, c_int64, c_void_p
from functools import cache

import numpy as np
import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.plain_tensor import check_plain
from bagpipe_hpc.kernels.reference import adam_factors
from bagpipe_hpc.kernels.sum_order import SumOrder

LIBRARY = "row_operations"

_LINE_FLOATS = 16

_SIGNATURES: dict[str, tuple[type, ...]] = {
    "gather_look_ups": (c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int32),
    "gather_records": (c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int32),
    "scatter_records": (c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int32),
    "sum_by_position": (c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int32),
    "apply_sgd": (c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_float, c_int32),
    "apply_rowwise_adagrad": (c_void_p,) * 2 + (c_int64, c_void_p, c_void_p, c_int64, c_float, c_float, c_int32),
    "apply_adagrad": (c_void_p,) * 2 + (c_int64, c_void_p, c_void_p, c_int64, c_float, c_float, c_int32),
    "apply_adam": (c_void_p,) * 3 + (c_int64, c_void_p, c_void_p, c_int64, *(c_float,) * 7, c_int32),
}


class NativeRowOperations:
    """`RowOperations` on the CPU, where the methods are described.

    Slots and positions outside their tables are refused before anything is written. That slots differ is not checked.

    Args:
        threads: most threads of one call; small calls take fewer.

    Raises:
        ConfigError: the library was not built or does not load.
    """

    def __init__(self, threads: int) -> None:
        self._library = _library()
        self._threads = threads

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """See `RowOperations`."""
        return self.gather_records([table], slots)

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """See `RowOperations`."""
        width = _width("table", table)
        self._check_slots(slots, [table])
        self._check_indices("positions", positions, slots.numel())
        found = _new(positions.numel(), width)
        self._library.gather_look_ups(
            table.data_ptr(),
            width,
            slots.data_ptr(),
            positions.data_ptr(),
            positions.numel(),
            found.data_ptr(),
            self._threads,
        )
        return found

    def gather_records(self, columns: Sequence[Tensor], slots: Tensor) -> Tensor:
        """See `RowOperations`."""
        self._check_slots(slots, columns)
        records = _new(slots.numel(), sum(_width("columns", part) for part in columns))
        self._move(self._library.gather_records, columns, slots, records)
        return records

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """See `RowOperations`."""
        self._check_slots(slots, columns)
        check_plain(records, (slots.numel(), sum(_width("columns", part) for part in columns)), name="records")
        self._move(self._library.scatter_records, columns, slots, records)

    def order_look_ups(self, positions: Tensor, count: int) -> None:
        """See `RowOperations`."""

    def sum_by_position(
        self,
        gradients: Tensor,
        positions: Tensor,
        count: int,
        order: SumOrder | None = None,  # noqa: ARG002
    ) -> Tensor:
        """See `RowOperations`."""
        width = _width("gradients", gradients)
        check_plain(positions, (len(gradients),), torch.int32, "positions")
        self._check_indices("positions", positions, count)
        sums = _new(count, width)
        self._library.sum_by_position(
            gradients.data_ptr(),
            positions.data_ptr(),
            positions.numel(),
            width,
            sums.data_ptr(),
            count,
            self._threads,
        )
        return sums

    def apply_sgd(self, weights: Tensor, slots: Tensor, gradients: Tensor, lr: float) -> None:
        """See `RowOperations`."""
        self._update(self._library.apply_sgd, [weights], slots, gradients, lr)

    def apply_rowwise_adagrad(
        self, weights: Tensor, accumulator: Tensor, slots: Tensor, gradients: Tensor, lr: float, eps: float
    ) -> None:
        """See `RowOperations`."""
        check_plain(accumulator, (len(weights), 1), name="accumulator")
        self._update(self._library.apply_rowwise_adagrad, [weights, accumulator], slots, gradients, lr, eps)

    def apply_adagrad(
        self, weights: Tensor, accumulator: Tensor, slots: Tensor, gradients: Tensor, lr: float, eps: float
    ) -> None:
        """See `RowOperations`."""
        check_plain(accumulator, tuple(weights.shape), name="accumulator")
        self._update(self._library.apply_adagrad, [weights, accumulator], slots, gradients, lr, eps)

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
        check_plain(first, tuple(weights.shape), name="first")
        check_plain(second, tuple(weights.shape), name="second")
        numbers = (beta1, 1 - beta1, beta2, 1 - beta2, eps, *adam_factors(lr, beta1, beta2, step))
        self._update(self._library.apply_adam, [weights, first, second], slots, gradients, *numbers)

    def _move(self, kernel: Callable[..., None], columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """Copy rows between tables and records, in the kernel's direction."""
        tables = (c_void_p * len(columns))(*(part.data_ptr() for part in columns))
        widths = (c_int64 * len(columns))(*(part.shape[1] for part in columns))
        kernel(tables, widths, len(columns), slots.data_ptr(), slots.numel(), records.data_ptr(), self._threads)

    def _update(
        self, kernel: Callable[..., None], tables: Sequence[Tensor], slots: Tensor, gradients: Tensor, *numbers: float
    ) -> None:
        """Step rows of the weights and of their optimizer's state, whose shapes have been checked."""
        self._check_slots(slots, tables[:1])
        width = _width("weights", tables[0])
        check_plain(gradients, (slots.numel(), width), name="gradients")
        pointers = (table.data_ptr() for table in tables)
        kernel(*pointers, width, slots.data_ptr(), gradients.data_ptr(), slots.numel(), *numbers, self._threads)

    def _check_slots(self, slots: Tensor, columns: Sequence[Tensor]) -> None:
        for part in columns:
            _width("columns", part)
        self._check_indices("slots", slots, min(len(part) for part in columns))

    def _check_indices(self, name: str, indices: Tensor, count: int) -> None:
        """See that every index is below `count`: a few microseconds, against memory that would be overwritten silently.

        Raises:
            IndexError: one is not.
        """
        check_plain(indices, (indices.numel(),), torch.int32, name)
        if indices.numel() and self._library.largest_index(indices.data_ptr(), indices.numel()) >= count:
            found = f"{name} reach from {int(indices.min())} to {int(indices.max())}"
            raise IndexError(f"{found}: must lie in 0 to {count - 1}")


@cache
def _library() -> CDLL:
    library = shared_library.load(LIBRARY)
    for name, arguments in _SIGNATURES.items():
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = None
    library.largest_index.argtypes = (c_void_p, c_int64)
    library.largest_index.restype = c_int64
    return library


def _new(rows: int, width: int) -> Tensor:
    """Memory for a result, float32 `[rows, width]`, at the start of a cache line.

    From NumPy, which asks for huge pages. And in a plain block: torch's are aligned ones, which glibc 2.36 may not find
    again for the next request of their size, so that each step would fault in new pages.
    """
    floats = np.empty(rows * width + _LINE_FLOATS, dtype=np.float32)
    first = -floats.ctypes.data // floats.itemsize % _LINE_FLOATS
    return torch.from_numpy(floats[first : first + rows * width]).view(rows, width)


def _width(name: str, table: Tensor) -> int:
    """Columns of a table, which must be one, of a column or more: kernels divide by the bytes of a row."""
    check_plain(table, (len(table), max(1, table.shape[-1])), name=name)
    return table.shape[1]
