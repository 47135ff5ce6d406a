"""Sums dense gradients over the trainers with messages (`train.dense_sums=mpi` and `grid`).

Groups of weights are complete one after the other, and their sums have several stages. Sums that share communicators
must begin each stage in order, so that a newer one waits for the older. So each group has communicators of its own.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bagpipe_hpc.mpi.pending_sum import PendingSum
from bagpipe_hpc.mpi.reduction import GradientReducer, SumComms
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.plan.sum_levels import Levels, sum_levels


@dataclass(frozen=True)
class _Sum:
    """A sum of the reducer's, which puts it in the place of the gradients."""

    pending: PendingSum

    def is_complete(self) -> bool:
        """Whether the sum is there; moves it on."""
        return self.pending.advance_far()

    def finish(self) -> None:
        """Nothing: the sum is in place."""


_WAYS = 6
"""Groups whose sums do not wait for each other: as many as a model has by default (`gradient_groups`). Where there are
more groups, some share communicators."""


class MpiSums:
    """The `DenseSums` of the project's own reducer, which sums row gradients, too: in rank order.

    The mover, or a thread for that alone, moves sums on; the compute thread moves on the one that it waits for.

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
        """The levels on which trainers sum: a single one here."""
        return (trainers,)

    def sums_on(self, device: torch.device) -> bool:
        """Main memory alone."""
        return device.type == "cpu"

    def start(self, group: int, gradients: Tensor) -> _Sum:
        """Start an operation; those of other groups do not wait for it, nor it for them."""
        numbers = gradients.numpy()[:, None]
        return _Sum(self._reducers[group % len(self._reducers)].start(numbers, into=numbers))

    def advance(self) -> bool:
        """Test what is under way, and start what comes next; however long the caller pauses does no harm."""
        self._advance_all()
        return False

    def _advance_all(self) -> bool:
        """Whether anything is under way."""
        return sum(reducer.advance() for reducer in self._reducers) > 0

    def awaited(self) -> list[Awaited]:
        """What the reducers' sums wait for."""
        return [awaited for reducer in self._reducers for awaited in reducer.awaited()]

    def close(self) -> None:
        """Give the communicators back."""
        for comms in reversed(self._comms):
            for of_level in reversed(comms):
                of_level.gathering.Free()
                of_level.adding.Free()


class GridSums(MpiSums):
    """Sums over a grid of trainers, for many of them: level by level, and back the same way (`plan/sum_levels.py`).

    The grid has two dimensions or three. A trainer sends messages to the other members of its groups alone, in place of
    T - 1 messages. The order of additions is that of the grid, the same in every run; for fewer than four trainers, or
    a prime number of them, it is rank order. With `deterministic` it is always rank order, as in `MpiSums`.
    """

    def _levels(self, trainers: int, *, deterministic: bool) -> Levels:
        """The levels with the fewest messages, or a single one."""
        return (trainers,) if deterministic or trainers == 1 else sum_levels(trainers)

    def advance(self) -> bool:
        """Test what is under way, and start what comes next; returns whether anything has further hops to start."""
        return self._advance_all()
