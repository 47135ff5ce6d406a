"""`GridHops` in C++ (`csrc/grid_hops.cpp`): one call lays the first hop out, another passes rows on."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.plan.exchange import Counts, Flow
from bagpipe_hpc.plan.grid_hops import Column, FirstHop, GridHops, Layout, NumpyGridHops, contradiction

_LIBRARY = "grid_hops"
_NO_BYTES = ctypes.c_char * 0
_WRONG_SIZES = -1
"""What `pass_grid_rows` returns where arrays do not have as many rows as flow."""


def grid_hops(backend: str) -> GridHops:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return NativeGridHops() if use_native(backend, _LIBRARY) else NumpyGridHops()


class _Column(ctypes.Structure):
    """`Column` in csrc/grid_hops.cpp."""

    _fields_ = (
        ("isend", ctypes.c_void_p),
        ("irecv", ctypes.c_void_p),
        ("handle_bytes", ctypes.c_int64),
        ("comm", ctypes.c_int64),
        ("byte", ctypes.c_int64),
        ("tag", ctypes.c_int64),
        ("ranks", ctypes.c_void_p),
    )


class NativeGridHops:
    """Native `GridHops`, which describes the methods.

    Raises:
        ConfigError: the library was not built or does not load.
    """

    def __init__(self) -> None:
        library = shared_library.load(_LIBRARY)
        self._lay_out, self._pass_on = library.lay_out_grid_hop, library.pass_grid_rows
        address, number = ctypes.c_void_p, ctypes.c_int64
        self._lay_out.argtypes = [*[address] * 3, *[number] * 5, address]
        self._pass_on.argtypes = [*[address] * 2, *[number] * 5, *[address] * 3, *[number] * 3, *[address] * 3]
        self._lay_out.restype, self._pass_on.restype = ctypes.c_int32, ctypes.c_int64
        self._plain = NumpyGridHops()

    def lay_out(self, flow: Flow, place: tuple[int, int], width: int) -> FirstHop:
        """All by one call."""
        (rows, columns), layouts = flow.grid, np.empty((4, flow.grid.columns), dtype=np.int64)
        counts = _int32(flow.to), _int32(flow.source), _int32(flow.relayed)
        if not self._lay_out(*map(_memory, counts), rows, columns, *place, width, _memory(layouts)):
            raise ValueError(contradiction(flow, place))
        found = layouts.tolist()
        return FirstHop(Layout(*found[:2]), Layout(*found[2:]))

    def pass_on(
        self,
        flow: Flow,
        place: tuple[int, int],
        taken: NDArray[Any],
        passed: NDArray[Any],
        into: NDArray[Any],
        column: Column,
    ) -> None:
        """All by one call, which itself calls MPI, without the GIL, so that other threads go on."""
        if column.by_address is None:
            self._plain.pass_on(flow, place, taken, passed, into, column)
            return
        arrays = taken, passed, into
        kinds = {(rows.dtype, rows.shape[1:], rows.flags.c_contiguous) for rows in arrays}
        if kinds != {(taken.dtype, taken.shape[1:], True)}:
            raise ValueError(f"native code needs contiguous rows of one kind, not {kinds}")
        if not (passed.flags.writeable and into.flags.writeable):
            raise ValueError("rows would be written to an array that is read-only")
        counts = _int32(flow.source), _int32(flow.relayed)
        row_bytes = taken.itemsize * taken.shape[1]
        sizes = [len(rows) for rows in arrays]
        *calls, ranks = column.by_address
        of_column, failure = _Column(*calls, ranks.ctypes.data), ctypes.c_int32()
        requests = np.empty(2 * flow.grid.rows, dtype=np.int64)
        moved = *map(_memory, counts), *flow.grid, *place, row_bytes, *map(_memory, arrays), *sizes
        by_messages = ctypes.byref(of_column), _memory(requests), ctypes.byref(failure)
        begun = self._pass_on(*moved, *by_messages)
        if begun < 0:
            what = "do not hold" if begun == _WRONG_SIZES else "hold too many bytes for a message of"
            raise ValueError(f"arrays of {sizes} rows of {row_bytes} bytes {what} what flows: {flow}")
        column.began(requests[:begun], failure.value)


def _int32(counts: Counts) -> NDArray[np.int32]:
    """Counts as native code takes them; those of plans are so already."""
    return np.ascontiguousarray(counts, dtype=np.int32)


def _memory(array: NDArray[Any]) -> Any:
    """What ctypes takes for an array's address: for memory that may be written, in a third of `array.ctypes`' time."""
    if not array.flags.writeable:
        return array.ctypes.data
    return _NO_BYTES.from_buffer(array)  # type: ignore[arg-type] # an array is a buffer
