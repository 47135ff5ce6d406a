"""Sums of row gradients over the trainers, from and to the device that computes."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bagpipe_hpc.kernels.device import Device
from bagpipe_hpc.kernels.rows.short_floats import ShortFloats
from bagpipe_hpc.mpi.pending_sum import PendingSum
from bagpipe_hpc.mpi.reduction import GradientReducer
from bagpipe_hpc.mpi.requests import Awaited


@dataclass(frozen=True)
class PendingRowSums:
    """A sum that is under way.

    Attributes:
        pending: the same in main memory.
        device: where it is wanted.
    """

    pending: PendingSum
    device: Device

    def advance(self) -> None:
        """Let it go on if it can. Never waits."""
        self.pending.advance()

    def wait(self, what: str) -> Tensor:
        """The sum over all trainers, on the device, float32 of the shape that was given; see `PendingSum.wait`."""
        return self.device.to_device(self.pending.wait(what))


class RowSums:
    """Starts sums over the trainers; every trainer starts the same sums in the same order.

    Args:
        reducer: sums arrays in main memory.
        device: where the gradients are.
        short: how the reducer's numbers are packed; None where they are float32.
        ring: tells the mover that it has a sum to move on.
    """

    def __init__(
        self, reducer: GradientReducer, device: Device, short: ShortFloats | None, ring: Callable[[], None]
    ) -> None:
        self._reducer = reducer
        self._device = device
        self._short = short
        self._ring = ring

    def start(self, sums: Tensor) -> PendingRowSums:
        """Start summing `[rows, D]`, left alone until the sum has been waited for.

        A GPU must have computed them first, and this waits until it has.
        """
        packed = sums if self._short is None else self._short.pack(sums)
        pending = self._reducer.start(self._device.to_host(packed))
        self._ring()
        return PendingRowSums(pending, self._device)

    def advance(self) -> bool:
        """Move on what is under way, from another thread than the one that starts sums; whether anything is."""
        return self._reducer.advance()

    def awaited(self) -> list[Awaited]:
        """What `advance` goes on behind, until it is called again."""
        return self._reducer.awaited()

    def rounded(self, sums: Tensor) -> Tensor:
        """The trainer's own `[rows, D]` as they would be had they travelled.

        Which rows travel depends on the window, and no result may depend on that.
        """
        return sums if self._short is None else self._short.rounded(sums)
