"""The operations on embedding rows of one device, and the choice of the code that carries them out.

All implementations give the same bits (`reference` is the definition), so the choice is one of speed alone.

Legend: `R` rows of a table or cache, `K` columns, `N` rows of one call, `M` look-ups, `U` distinct rows of a batch, `O`
outputs, `D` embedding width, `W` numbers of a whole record. Numbers are float32, slots and positions int32; every
tensor is contiguous and lies on the device that the operations were made for. Slots are distinct unless said otherwise.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.kernels.rows import native
from bagpipe_hpc.kernels.rows.cuda import CudaRowOperations
from bagpipe_hpc.kernels.rows.native import NativeRowOperations
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from bagpipe_hpc.kernels.rows.sum_order import SumOrder
from bagpipe_hpc.kernels.rows.update_kernels import UpdateKernel


class RowOperations(Protocol):
    """What a row cache and a training step need; rounding is that of `ReferenceRowOperations`."""

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """Copy rows, which may repeat: `table [R, K]`, `slots [N]` to `[N, K]`."""

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """The row of each look-up, `table[slots[positions]]`: `[R, D]`, `[U]`, `[M]` to `[M, D]`."""

    def gather_records(self, columns: Sequence[Tensor], slots: Tensor) -> Tensor:
        """Copy rows of several tables side by side: each `[R, K_i]`, `slots [N]` to `[N, W]`, W the sum of all K_i."""

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """Overwrite rows of several tables, the inverse of `gather_records`: `records [N, W]`."""

    def order_look_ups(self, positions: Tensor, count: int) -> SumOrder | None:
        """What `sum_by_position` needs besides gradients, and can be computed before them; None if it needs nothing."""

    def sum_by_position(
        self, gradients: Tensor, positions: Tensor, count: int, order: SumOrder | None = None
    ) -> Tensor:
        """Sum the gradients of equal rows, in the order in which they stand.

        Args:
            gradients: `[M, D]`.
            positions: `[M]`, each below `count`.
            count: number of distinct rows.
            order: what `order_look_ups` gave for these positions, if it was asked.

        Returns:
            `[count, D]`; each sum runs from left to right, starting with 0, and stays 0 for a row without look-ups.
        """

    def pool(self, table: Tensor, slots: Tensor, positions: Tensor, layout: PoolLayout) -> Tensor:
        """Look rows up and add up those of each output, in the order in which they stand, starting with 0.

        Args:
            table: `[R, D]`.
            slots: `[U]`.
            positions: the row of each look-up, as an index into `slots`, `[M]`.
            layout: which look-ups make which output. A row is multiplied by its scale and rounded, then added.

        Returns:
            `[O, D]`; an output without look-ups is 0.
        """

    def sum_pooled(
        self, gradients: Tensor, positions: Tensor, count: int, order: SumOrder | None, layout: PoolLayout
    ) -> Tensor:
        """Sum for each row what comes back from the outputs to its look-ups: the derivative of `pool`.

        Args:
            gradients: of the outputs, `[O, D]`.
            positions: the row of each look-up, `[M]`, each below `count`.
            count: number of distinct rows U.
            order: what `order_look_ups` gave for these positions, if it was asked.
            layout: as for `pool`. A gradient is multiplied by the look-up's scale and rounded, then added.

        Returns:
            `[count, D]`; sums run as in `sum_by_position`.
        """

    def update_kernel(self, name: str, width: int) -> UpdateKernel | None:
        """Native code of `UPDATE_KERNELS[name]` for rows of D = `width`; None where the formula has to be used."""


def row_operations(backend: str, device: torch.device, threads: int = 1) -> RowOperations:
    """Choose the implementation for a device, and say so in the log.

    Args:
        backend: `kernels.backend`.
        device: where the rows are.
        threads: most CPU threads of one call.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    if device.type == "cpu" and use_native(backend, native.LIBRARY):
        return NativeRowOperations(threads)
    if device.type == "cuda" and use_native(backend, "cuda"):
        return CudaRowOperations(shared_library.load("cuda"), device)
    return ReferenceRowOperations()
