"""Row operations in C++ for rows in main memory (`csrc/row_operations.cpp`): the bits of `reference`, at memory speed.

The legend is that of `row_operations`.
"""

from collections.abc import Callable, Mapping, Sequence
from ctypes import CDLL, c_float, c_int32, c_int64, c_void_p
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.plain_tensor import check_plain
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.sum_order import SumOrder
from bagpipe_hpc.kernels.rows.update_kernels import UPDATE_KERNELS, UpdateKernel

LIBRARY = "row_operations"

_LINE_FLOATS = 16

_SIGNATURES: Mapping[str, tuple[type, ...]] = {
    "gather_look_ups": (c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_int32),
    "gather_records": (c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int32),
    "scatter_records": (c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int32),
    "sum_by_position": (c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int32),
    "pool": (c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int32),
    "sum_pooled": (c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int32),
} | {
    f"apply_{name}": (
        *(c_void_p,) * (1 + len(kernel.per_weight)),
        *(c_int64, c_void_p, c_void_p, c_int64),
        *(c_float,) * kernel.numbers,
        c_int32,
    )
    for name, kernel in UPDATE_KERNELS.items()
}


class NativeRowOperations:
    """`RowOperations`, which describes the methods, on the CPU.

    Slots and positions outside their tables are refused before anything is written. Whether slots repeat is not
    checked.

    Args:
        threads: most threads of one call; small calls take fewer.

    Raises:
        ConfigError: the library was not built or does not load.
    """

    def __init__(self, threads: int) -> None:
        self._library = _library()
        self._threads = threads

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """Gather records of the one table."""
        return self.gather_records([table], slots)

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """Copy in one pass, slots and rows prefetched."""
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
        """Copy all tables' parts of a record before the next one."""
        self._check_slots(slots, columns)
        records = _new(slots.numel(), sum(_width("columns", part) for part in columns))
        self._move(self._library.gather_records, columns, slots, records)
        return records

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """Copy all parts of a record before the next one."""
        self._check_slots(slots, columns)
        check_plain(records, (slots.numel(), sum(_width("columns", part) for part in columns)), name="records")
        self._move(self._library.scatter_records, columns, slots, records)

    def order_look_ups(self, positions: Tensor, count: int) -> None:
        """None: the sums find equal rows by themselves."""

    def sum_by_position(
        self,
        gradients: Tensor,
        positions: Tensor,
        count: int,
        order: SumOrder | None = None,  # noqa: ARG002
    ) -> Tensor:
        """In native code; threads share out the distinct rows, so that their number changes no bit."""
        width = _width("gradients", gradients)
        check_plain(positions, (gradients.shape[0],), torch.int32, "positions")
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

    def pool(self, table: Tensor, slots: Tensor, positions: Tensor, layout: PoolLayout) -> Tensor:
        """In one pass: an output stays in registers while its rows come; threads share out the outputs."""
        width = _width("table", table)
        self._check_slots(slots, [table])
        self._check_indices("positions", positions, slots.numel())
        self._check_layout(layout, positions)
        pooled = _new(layout.outputs_count, width)
        self._library.pool(
            table.data_ptr(),
            width,
            slots.data_ptr(),
            positions.data_ptr(),
            layout.starts.data_ptr(),
            None if layout.scales is None else layout.scales.data_ptr(),
            layout.outputs_count,
            pooled.data_ptr(),
            self._threads,
        )
        return pooled

    def sum_pooled(
        self,
        gradients: Tensor,
        positions: Tensor,
        count: int,
        order: SumOrder | None,  # noqa: ARG002
        layout: PoolLayout,
    ) -> Tensor:
        """In one pass, which reads each output's gradient where it is; threads as in `sum_by_position`."""
        width = _width("gradients", gradients)
        check_plain(gradients, (layout.outputs_count, width), name="gradients")
        self._check_indices("positions", positions, count)
        self._check_layout(layout, positions)
        sums = _new(count, width)
        self._library.sum_pooled(
            gradients.data_ptr(),
            layout.outputs.data_ptr(),
            None if layout.scales is None else layout.scales.data_ptr(),
            positions.data_ptr(),
            positions.numel(),
            width,
            sums.data_ptr(),
            count,
            self._threads,
        )
        return sums

    def update_kernel(self, name: str, width: int) -> UpdateKernel | None:  # noqa: ARG002
        """The kernel of this formula, bound to the library; None where it has none."""
        return partial(self._update, name) if name in UPDATE_KERNELS else None

    def _move(self, kernel: Callable[..., None], columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """Copy rows between tables and records, in the kernel's direction."""
        tables = (c_void_p * len(columns))(*(part.data_ptr() for part in columns))
        widths = (c_int64 * len(columns))(*(part.shape[1] for part in columns))
        kernel(tables, widths, len(columns), slots.data_ptr(), slots.numel(), records.data_ptr(), self._threads)

    def _update(
        self,
        name: str,
        weights: Tensor,
        state: Sequence[Tensor],
        slots: Tensor,
        gradients: Tensor,
        numbers: Sequence[float],
    ) -> None:
        """Step rows of the weights and of their optimizer's state."""
        self._check_slots(slots, [weights])
        width = _width("weights", weights)
        shapes = UPDATE_KERNELS[name].state_shapes(len(weights), width)
        for place, (part, shape) in enumerate(zip(state, shapes, strict=True)):
            check_plain(part, shape, name=f"state[{place}]")
        check_plain(gradients, (slots.numel(), width), name="gradients")
        pointers = (table.data_ptr() for table in (weights, *state))
        kernel = getattr(self._library, f"apply_{name}")
        kernel(*pointers, width, slots.data_ptr(), gradients.data_ptr(), slots.numel(), *numbers, self._threads)

    def _check_slots(self, slots: Tensor, columns: Sequence[Tensor]) -> None:
        for part in columns:
            _width("columns", part)
        self._check_indices("slots", slots, min(part.shape[0] for part in columns))

    def _check_layout(self, layout: PoolLayout, positions: Tensor) -> None:
        """Check that a layout fits these look-ups.

        Raises:
            IndexError: it leads outside them, or outside the outputs.
        """
        check_plain(layout.starts, (max(1, len(layout.starts)),), torch.int32, "starts")
        check_plain(layout.outputs, tuple(positions.shape), torch.int32, "outputs")
        if layout.scales is not None:
            check_plain(layout.scales, tuple(positions.shape), name="scales")
        if not self._library.are_starts(layout.starts.data_ptr(), layout.outputs_count, positions.numel()):
            raise IndexError(f"starts must ascend from 0 to {positions.numel()}, the number of look-ups")
        self._check_indices("outputs", layout.outputs, layout.outputs_count)

    def _check_indices(self, name: str, indices: Tensor, count: int) -> None:
        """Check that every index is below `count`: it takes microseconds, and others would overwrite memory silently.

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
    library.are_starts.argtypes = (c_void_p, c_int64, c_int64)
    library.are_starts.restype = c_int32
    return library


def _new(rows: int, width: int) -> Tensor:
    """Memory for a result, float32 `[rows, width]`, at the start of a cache line.

    It comes from NumPy, which asks for huge pages, and from a plain block: torch asks for aligned ones, which glibc
    2.36 may not find again for the next request of the same size, so that each step would fault in new pages.
    """
    floats = np.empty(rows * width + _LINE_FLOATS, dtype=np.float32)
    first = -floats.ctypes.data // floats.itemsize % _LINE_FLOATS
    return torch.from_numpy(floats[first : first + rows * width]).view(rows, width)


def _width(name: str, table: Tensor) -> int:
    """Columns of a table, after a check that it has one at least: kernels divide by the bytes of a row."""
    check_plain(table, (table.shape[0], max(1, table.shape[-1])), name=name)
    return table.shape[1]
