"""The operations on embedding rows of one device, and the choice of who carries them out.

All implementations give the same bits (`reference` is the definition), so the choice is one of speed alone.

Legend: `R` rows of a table or cache, `K` columns, `N` rows of one call, `M` look-ups, `U` distinct rows of a batch, `D`
embedding width, `W` numbers of a whole record. Numbers are float32, slots and positions int32; every tensor is
contiguous and lies on the device that the operations were made for. Slots are distinct unless said otherwise, and every
update is in place.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from bagpipe_hpc.kernels import native, shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.kernels.cuda import CudaRowOperations
from bagpipe_hpc.kernels.native import NativeRowOperations
from bagpipe_hpc.kernels.reference import ReferenceRowOperations
from bagpipe_hpc.kernels.sum_order import SumOrder


class RowOperations(Protocol):
    """What a row cache and a training step need; formulas and rounding are those of `ReferenceRowOperations`."""

    def gather(self, table: Tensor, slots: Tensor) -> Tensor:
        """Copy rows, which may repeat: `table [R, K]`, `slots [N]` to `[N, K]`."""

    def gather_look_ups(self, table: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """The row of each look-up, `table[slots[positions]]`: `[R, D]`, `[U]`, `[M]` to `[M, D]`."""

    def gather_records(self, columns: Sequence[Tensor], slots: Tensor) -> Tensor:
        """Copy rows of several tables side by side: each `[R, K_i]`, `slots [N]` to `[N, W]`, W the sum of all K_i."""

    def scatter_records(self, columns: Sequence[Tensor], slots: Tensor, records: Tensor) -> None:
        """Overwrite rows of several tables, the inverse of `gather_records`: `records [N, W]`."""

    def order_look_ups(self, positions: Tensor, count: int) -> SumOrder | None:
        """What `sum_by_position` needs besides the gradients and can be had before them; None where that is nothing."""

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
            `[count, D]`; each sum runs from left to right, starting with 0, which is left where no look-up points.
        """

    def apply_sgd(self, weights: Tensor, slots: Tensor, gradients: Tensor, lr: float) -> None:
        """`w -= g * lr`: `weights [R, D]`, `slots [N]`, `gradients [N, D]`."""

    def apply_rowwise_adagrad(
        self, weights: Tensor, accumulator: Tensor, slots: Tensor, gradients: Tensor, lr: float, eps: float
    ) -> None:
        """`a += mean(g * g); w -= g / (sqrt(a) + eps) * lr`, one accumulator a row: `accumulator [R, 1]`."""

    def apply_adagrad(
        self, weights: Tensor, accumulator: Tensor, slots: Tensor, gradients: Tensor, lr: float, eps: float
    ) -> None:
        """`a += g * g; w -= g / (sqrt(a) + eps) * lr`: `accumulator [R, D]`."""

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
        """Adam on the rows of this step alone, with the bias corrections of global step `step`, from 1.

        Args:
            weights: `[R, D]`.
            first: mean of the gradients, `[R, D]`.
            second: mean of their squares, `[R, D]`.
            slots: `[N]`.
            gradients: `[N, D]`.
            lr: learning rate.
            beta1: decay of `first`.
            beta2: decay of `second`.
            eps: added to the root.
            step: number of the step, from 1.
        """


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
