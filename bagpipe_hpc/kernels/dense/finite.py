"""Looks for NaN and infinity, where they would spread: in updated rows and in the dense half.

Native code reads each number once, on the CPU while it is still in the processor's cache; the torch twin works on any
device and waits for none, since what it finds stays there.

Legend: `R` rows of a table, `K` its columns, `N` rows of one call.
"""

from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from typing import Protocol, SupportsInt

import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.kernels.plain_tensor import check_plain


class FiniteKernel(Protocol):
    """The two questions; answers are whole numbers, or int64 `[]` on the numbers' device."""

    def first_row(self, tables: Sequence[Tensor], slots: Tensor) -> SupportsInt:
        """The first place in `slots` whose row is not finite in any of some tables; N if there is none.

        Args:
            tables: float32 `[R, K]` each, contiguous.
            slots: int32 `[N]`, each below R.
        """

    def first_tensor(self, tensors: Sequence[Tensor]) -> SupportsInt:
        """The first of some tensors, contiguous, float32, of any shape, that is not finite; their number if all are."""


def finite_kernel(backend: str, device: torch.device, threads: int = 1) -> FiniteKernel:
    """Choose the implementation for a device, and say so in the log.

    Args:
        backend: `kernels.backend`.
        device: where the numbers are.
        threads: most CPU threads of one call.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    is_native = device.type == "cpu" and use_native(backend, "finite")
    return NativeFinite(threads) if is_native else ReferenceFinite()


class ReferenceFinite:
    """Plain torch, on any device: the definition."""

    def first_row(self, tables: Sequence[Tensor], slots: Tensor) -> Tensor:
        """Look at each number of the rows, one table after the other."""
        rows = [torch.isfinite(table.index_select(0, slots)).all(1) for table in tables]
        return _first_false(torch.stack(rows).all(0))

    def first_tensor(self, tensors: Sequence[Tensor]) -> Tensor:
        """By the largest magnitude of each, which is one pass without temporaries of their size."""
        if not tensors:
            return torch.tensor(0)
        empty = torch.zeros((), device=tensors[0].device)
        largest = [torch.linalg.vector_norm(part, torch.inf) if part.numel() else empty for part in tensors]
        return _first_false(torch.isfinite(torch.stack(largest)))


def _first_false(are_fine: Tensor) -> Tensor:
    """The first place that is false, or the number of places."""
    return torch.cat((are_fine, are_fine.new_zeros(1))).logical_not().int().argmax()


class NativeFinite:
    """C++ (csrc/finite.cpp).

    Args:
        threads: most threads of one call on rows; small calls take fewer.

    Raises:
        ConfigError: the library was not built or does not load.
    """

    def __init__(self, threads: int) -> None:
        library = shared_library.load("finite")
        self._first_row = library.first_row_not_finite
        self._first_row.argtypes = (c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int64)
        self._first_row.restype = c_int64
        self._first_array = library.first_array_not_finite
        self._first_array.argtypes = (c_void_p, c_void_p, c_int64)
        self._first_array.restype = c_int64
        self._threads = threads

    def first_row(self, tables: Sequence[Tensor], slots: Tensor) -> int:
        """One pass over the rows, in native code; slots are those of an update, which has checked them."""
        check_plain(slots, (slots.numel(),), torch.int32, "slots")
        for table in tables:
            check_plain(table, (table.shape[0], table.shape[1]), name="table")
        addresses = (c_void_p * len(tables))(*(table.data_ptr() for table in tables))
        widths = (c_int64 * len(tables))(*(table.shape[1] for table in tables))
        first: int = self._first_row(addresses, widths, len(tables), slots.data_ptr(), slots.numel(), self._threads)
        return first

    def first_tensor(self, tensors: Sequence[Tensor]) -> int:
        """One pass over each tensor, in native code, until one is not finite."""
        for tensor in tensors:
            check_plain(tensor, tensor.shape, name="tensor")
        addresses = (c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
        counts = (c_int64 * len(tensors))(*(tensor.numel() for tensor in tensors))
        first: int = self._first_array(addresses, counts, len(tensors))
        return first
