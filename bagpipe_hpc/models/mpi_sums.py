"""Sums dense gradients over the trainers with messages (`train.dense_sums=mpi` and `grid`)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bagpipe_hpc.mpi.reduction import GradientReducer, PendingSum, SumComms
from bagpipe_hpc.mpi.request_watch import Awaited
from bagpipe_hpc.mpi.rows.grid_comms import GridComms
from bagpipe_hpc.plan.exchange_grid import Grid


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
    """The `DenseSums` of the project's own reducer, which sums row gradients, too: in rank order.

    Nobody spins: a sum is moved on by the mover while the compute thread computes, and by that while it waits.

    Args:
        comm: of the trainers, for this alone.
        gathering: another one of the same ranks.
        deterministic: it always is.
    """

    side_by_side = True

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

    def advance(self) -> bool:
        """Test and start what comes next; it is in time with the longest pauses of who does so."""
        self._reducer.advance()
        return False

    def awaited(self) -> list[Awaited]:
        """What the reducer's sums go on behind."""
        return self._reducer.awaited()

    def close(self) -> None:
        """Nothing is held."""


class GridSums(MpiSums):
    """Sums over a grid of trainers, for many of them: within each row, then from row to row, and back the same way.

    A trainer sends rows + columns - 2 messages each way in place of T - 1, in two hops. The order of additions is that
    of the grid, the same in every run, and for less than four trainers or a prime number of them rank order.

    Args:
        comm: as for `MpiSums`.
        gathering: as there.
        deterministic: add in rank order: over the grid of one row, as `MpiSums` does.

    Collective over: the trainers, as is `close`.
    """

    def __init__(self, comm: Any, gathering: Any, *, deterministic: bool) -> None:
        trainers = comm.Get_size()
        grid = Grid.direct(trainers) if deterministic else Grid.balanced(trainers)
        self._adding, self._gathering = (GridComms.split(own, grid) for own in (comm, gathering))
        across = None if grid.is_direct else SumComms(self._adding.column, self._gathering.column)
        self._reducer = GradientReducer(self._adding.row, self._gathering.row, across=across)
        self.trainers = trainers

    def advance(self) -> bool:
        """Test and start what comes next; whether anything is under way, whose hops wait to be begun."""
        return self._reducer.advance()

    def close(self) -> None:
        """Give the grid's communicators back."""
        self._gathering.free()
        self._adding.free()
