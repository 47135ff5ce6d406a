"""Sums dense gradients over the trainers with messages (`train.dense_sums=mpi` and `grid`).

Groups of weights are complete one after the other, and their sums have several stages. A sum that has to begin each
stage behind an older one, as all do that share communicators, ends later. So each group has communicators of its own.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bagpipe_hpc.mpi.reduction import GradientReducer, PendingSum, SumComms
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.plan.sum_levels import Levels, sum_levels


@dataclass(frozen=True)
class _Sum:
    """A sum of the reducer's, which it puts in the place of the gradients."""

    pending: PendingSum

    def is_complete(self) -> bool:
        """Whether the sum is there; moves it on."""
        return self.pending.advance_far()

    def finish(self) -> None:
        """Nothing: the sum is in place."""


_WAYS = 6
"""Groups whose sums do not wait for each other: as many as a model has by default (`gradient_groups`). Of more, some
share communicators."""


class MpiSums:
    """The `DenseSums` of the project's own reducer, which sums row gradients, too: in rank order.

    The mover moves sums on or a thread of their own, and the compute thread the one that it waits for.

    Args:
        comm: of the trainers, for this alone.
        deterministic: it always is.

    Collective over: the trainers, as is `close`.
    """

    side_by_side = True

    def __init__(self, comm: Any, *, deterministic: bool) -> None:
        self.trainers = comm.Get_size()
        levels = self._levels(self.trainers, deterministic=deterministic)
        ways = _WAYS if self.trainers > 1 else 1
        self._comms = [SumComms.split(comm, levels) for _ in range(ways)]
        self._reducers = [GradientReducer(*first, above=above) for first, *above in self._comms]

    def _levels(self, trainers: int, *, deterministic: bool) -> Levels:  # noqa: ARG002
        """On which trainers sum."""
        return (trainers,)

    def sums_on(self, device: torch.device) -> bool:
        """Main memory alone."""
        return device.type == "cpu"

    def start(self, group: int, gradients: Tensor) -> _Sum:
        """Start an operation; those of other groups do not wait for it, nor it for them."""
        numbers = gradients.numpy()[:, None]
        return _Sum(self._reducers[group % len(self._reducers)].start(numbers, into=numbers))

    def advance(self) -> bool:
        """Test and start what comes next; it is in time with the longest pauses of who does so."""
        self._advance_all()
        return False

    def _advance_all(self) -> bool:
        """Whether anything is under way."""
        return sum(reducer.advance() for reducer in self._reducers) > 0

    def awaited(self) -> list[Awaited]:
        """What the reducers' sums go on behind."""
        return [awaited for reducer in self._reducers for awaited in reducer.awaited()]

    def close(self) -> None:
        """Give the communicators back."""
        for comms in reversed(self._comms):
            for of_level in reversed(comms):
                of_level.gathering.Free()
                of_level.adding.Free()


class GridSums(MpiSums):
    """Sums over a grid of trainers, for many of them: level by level, and back the same way (`plan/sum_levels.py`).

    Of the grid's rows and columns, or of three dimensions. A trainer sends a message to the others of its groups in
    place of T - 1. The order of additions is that of the grid, the same in every run, and for less than four trainers
    or a prime number of them rank order. With `deterministic` it is rank order for any number, as `MpiSums` adds.
    """

    def _levels(self, trainers: int, *, deterministic: bool) -> Levels:
        """Those with the fewest messages."""
        return (trainers,) if deterministic or trainers == 1 else sum_levels(trainers)

    def advance(self) -> bool:
        """Test and start what comes next; whether anything is under way, whose hops wait to be begun."""
        return self._advance_all()
