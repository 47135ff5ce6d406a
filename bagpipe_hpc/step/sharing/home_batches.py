"""What a batch of rows with one home each has on its way: from its plan to the update of its last rows.

`home_rows.py` says who makes which of it, and when.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.kernels.device import Mark
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.rows.exchange import Arrival, awaited_together
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.exchange import Exchange, ExchangeCounts
from bagpipe_hpc.step.sharing.home_sums import HomeGradients, HomeTotal


class GroupExchange(NamedTuple):
    """What a trainer exchanges for a batch, of one group of tables.

    Attributes:
        group: of tables, from 0.
        rows: what is exchanged.
        solo: slots of the rows that this trainer alone uses.
    """

    group: int
    rows: Exchange
    solo: NDArray[np.int32]

    @property
    def counts(self) -> ExchangeCounts:
        """How many rows of each kind, and between whom."""
        return self.rows.counts


def exchanges_of(plan: ReceivedPlan) -> list[GroupExchange]:
    """What this trainer exchanges by a plan, of each group of tables."""
    found = []
    for group, (_, own) in enumerate(plan.groups):
        rows = own.exchanged
        assert rows is not None, "plans for rows with homes"
        found.append(GroupExchange(group, rows, own.private_slots))
    return found


@dataclass(frozen=True)
class SliceSums:
    """Sums of a slice's gradients, float32 `[rows, D]`, in the order of its slots."""

    now: Tensor
    later: Tensor
    lent_now: Tensor
    lent_later: Tensor
    solo: Tensor

    @classmethod
    def of(cls, own: GroupExchange, sums: Tensor) -> "SliceSums":
        """The parts of a slice's sums, float32 `[rows, D]`, as its plan has ordered them."""
        return cls(*torch.split(sums, own.rows.slice_parts(own.solo.size)))


class BegunGroup(NamedTuple):
    """A group of tables whose now gradients are on their way, behind the rest of the backward pass."""

    own: GroupExchange
    part: SliceSums
    now: HomeGradients


@dataclass
class ComputedBatch:
    """A batch that has been computed.

    Attributes:
        plan: of the batch.
        step: number of the step.
        parts: what is still to be summed of it, with the sums of this trainer's slice; none of an evaluation.
        mark: when the device has them.
        copies: of what it has updated, for the next batch, on their way to this trainer.
    """

    plan: ReceivedPlan
    step: int
    parts: list[tuple[GroupExchange, SliceSums]]
    mark: Mark
    copies: tuple[Arrival, ...] = ()


@dataclass
class LaterGradients:
    """A batch whose later gradients are on their way."""

    batch: int
    step: int
    sums: list[HomeGradients]
    totals: list[HomeTotal] = field(default_factory=list)

    def awaited(self) -> list[Awaited]:
        """What it is summed behind: all gradients first, then each sum over hosts."""
        if not self.totals:
            return awaited_together(of_group.arrival for of_group in self.sums)
        return [group for total in self.totals for group in total.awaited()]


@dataclass
class RestOfCopies:
    """The rest of the copies for a batch whose rows are fetched."""

    batch: int
    groups: list[GroupExchange]
    arrivals: list[Arrival] = field(default_factory=list)

    def has_come(self) -> bool:
        """Whether all copies are here."""
        return bool(self.arrivals) and all(arrival.is_complete() for arrival in self.arrivals)


def are_complete(coming: Sequence[Arrival | HomeTotal]) -> bool:
    """Whether all are; each of them is asked, and so moved on."""
    complete = [one.is_complete() for one in coming]
    return all(complete)
