"""Sums dense gradients over the trainers with messages, in rank order (`train.dense_sums=mpi`)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bagpipe_hpc.mpi.reduction import GradientReducer, PendingSum


@dataclass(frozen=True)
class _Sum:
    """A sum of the reducer's, which it puts in the place of the gradients."""

    pending: PendingSum

    def is_complete(self) -> bool:
        """Whether the sum is there; moves it on."""
        return self.pending.advance_far()

    def finish(self) -> None:
        """Nothing: the sum is in place."""


class MpiSums:
    """The `DenseSums` of the project's own reducer, which sums row gradients, too.

    Nobody spins: a sum is moved on by the mover while the compute thread computes, and by that while it waits.

    Args:
        comm: of the trainers, for this alone.
        gathering: another one of the same ranks.
        deterministic: it always is.
    """

    def __init__(self, comm: Any, gathering: Any, *, deterministic: bool) -> None:  # noqa: ARG002
        self._reducer = GradientReducer(comm, gathering)
        self.trainers = self._reducer.trainers

    def sums_on(self, device: torch.device) -> bool:
        """Main memory alone."""
        return device.type == "cpu"

    def start(self, group: int, gradients: Tensor) -> _Sum:  # noqa: ARG002
        """Start an operation; groups are told apart by their order."""
        numbers = gradients.numpy()[:, None]
        return _Sum(self._reducer.start(numbers, into=numbers))

    def advance(self) -> None:
        """Test and start what comes next."""
        self._reducer.advance()

    def close(self) -> None:
        """Nothing is held."""
