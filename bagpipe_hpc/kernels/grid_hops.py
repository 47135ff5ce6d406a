"""`GridHops` in C++ (`csrc/grid_hops.cpp`): a call lays both hops out, another puts rows in order without an index."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.plan.exchange import Counts, Flow
from bagpipe_hpc.plan.grid_hops import GridHops, GridLayouts, Layout, NumpyGridHops, contradiction

_LIBRARY = "grid_hops"
_NO_BYTES = ctypes.c_char * 0


def grid_hops(backend: str) -> GridHops:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return NativeGridHops() if use_native(backend, _LIBRARY) else NumpyGridHops()


class NativeGridHops:
    """`GridHops`, where the methods are described.

    Raises:
        ConfigError: the library was not built or does not load.
    """

    def __init__(self) -> None:
        library = shared_library.load(_LIBRARY)
        self._lay_out, self._pass_on = library.lay_out_grid_hops, library.pass_grid_rows
        address, number = ctypes.c_void_p, ctypes.c_int64
        self._lay_out.argtypes = [*[address] * 3, *[number] * 5, address]
        self._pass_on.argtypes = [*[address] * 2, *[number] * 5, *[address] * 3, *[number] * 3]
        self._lay_out.restype = self._pass_on.restype = ctypes.c_int32

    def lay_out(self, flow: Flow, place: tuple[int, int], width: int) -> GridLayouts:
        """All by one call."""
        (rows, columns), layouts = flow.grid, np.empty(4 * sum(flow.grid), dtype=np.int64)
        counts = _int32(flow.to), _int32(flow.source), _int32(flow.relayed)
        if not self._lay_out(*map(_memory, counts), rows, columns, *place, width, _memory(layouts)):
            raise ValueError(contradiction(flow, place))
        first, second = layouts[: 4 * columns].reshape(4, -1).tolist(), layouts[4 * columns :].reshape(4, -1).tolist()
        return GridLayouts(Layout(*first[:2]), Layout(*first[2:]), Layout(*second[:2]), Layout(*second[2:]))

    def pass_on(
        self, flow: Flow, place: tuple[int, int], taken: NDArray[Any], passed: NDArray[Any], into: NDArray[Any]
    ) -> None:
        """Piece by piece: what one sender has for one receiver."""
        arrays = taken, passed, into
        kinds = {(rows.dtype, rows.shape[1:], rows.flags.c_contiguous) for rows in arrays}
        if kinds != {(taken.dtype, taken.shape[1:], True)}:
            raise ValueError(f"native code needs contiguous rows of one kind, not {kinds}")
        counts = _int32(flow.source), _int32(flow.relayed)
        row_bytes = taken.itemsize * taken.shape[1]
        sizes = [len(rows) for rows in arrays]
        if not self._pass_on(*map(_memory, counts), *flow.grid, *place, row_bytes, *map(_memory, arrays), *sizes):
            raise ValueError(f"arrays of {sizes} rows do not hold what flows: {flow}")


def _int32(counts: Counts) -> NDArray[np.int32]:
    """As plans have them already."""
    return np.ascontiguousarray(counts, dtype=np.int32)


def _memory(array: NDArray[Any]) -> Any:
    """What ctypes takes for an address: in a third of the time of `array.ctypes`, where memory may be written."""
    if not array.flags.writeable:
        return array.ctypes.data
    return _NO_BYTES.from_buffer(array)  # type: ignore[arg-type] # an array is a buffer
