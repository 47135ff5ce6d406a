"""Sums of row gradients over the trainers, from and to the device that computes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bagpipe_hpc.kernels.device import Device
from bagpipe_hpc.kernels.short_floats import ShortFloats
from bagpipe_hpc.mpi.reduction import GradientReducer, PendingSum
from bagpipe_hpc.mpi.requests import Awaited


class PendingRows(Protocol):
    """A sum that is under way."""

    def advance(self) -> None:
        """Let it go on if it can. Never waits."""

    def wait(self, what: str) -> Tensor:
        """The sum over all trainers, on the device, float32 of the shape that was given; see `PendingSum.wait`."""


@dataclass(frozen=True)
class OwnRows:
    """The sum over a single trainer."""

    sums: Tensor

    def advance(self) -> None:
        """Nothing is under way."""

    def wait(self, what: str) -> Tensor:  # noqa: ARG002
        """The sums, which are complete."""
        return self.sums


@dataclass(frozen=True)
class ReducedRows:
    """A sum through MPI, in main memory."""

    pending: PendingSum
    device: Device

    def advance(self) -> None:
        """Move the sum through MPI on."""
        self.pending.advance()

    def wait(self, what: str) -> Tensor:
        """Wait for the sum, and bring it to the device."""
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
        self._short = short if reducer.trainers > 1 else None
        self._ring = ring

    def start(self, sums: Tensor) -> PendingRows:
        """Start summing `[rows, D]`, left alone until the sum has been waited for.

        A GPU must have computed them first, and this waits until it has.
        """
        if self._reducer.trainers == 1:
            return OwnRows(sums)
        packed = sums if self._short is None else self._short.pack(sums)
        pending = self._reducer.start(self._device.to_host(packed))
        self._ring()
        return ReducedRows(pending, self._device)

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
