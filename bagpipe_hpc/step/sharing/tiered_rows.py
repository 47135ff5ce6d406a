"""Rows in tiers (`cache.sharing=tiered`): those that every trainer has beside those with a home, or one on each host.

Of a slice's rows the first ones are those that all trainers hold. They go the way of replicated rows
(`replicated_rows.py`), all others that of rows with homes (`home_rows.py`), which knows what to do with those that are
held once a host. Neither knows of the other: they share no row, no communicator that both start operations on, and the
order of a step: sums that all trainers make first, then what goes home.
"""

from torch import Tensor

from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.sharing.home_rows import HomeRows
from bagpipe_hpc.step.sharing.replicated_rows import ReplicatedRows


class TieredRows:
    """The `RowSharing` of rows in tiers.

    Args:
        everywhere: shares the rows that every trainer holds.
        at_homes: shares the others.
    """

    def __init__(self, everywhere: ReplicatedRows, at_homes: HomeRows) -> None:
        self._everywhere = everywhere
        self._at_homes = at_homes

    def start(self, batch: ReadyBatch) -> None:
        """Take in the copies of what the batch before has updated."""
        self._everywhere.start(batch)
        self._at_homes.start(batch)

    def advance_delayed(self) -> None:
        """Move later sums on that all trainers make."""
        self._everywhere.advance_delayed()
        self._at_homes.advance_delayed()

    def begin_update(self, batch: ReadyBatch, group: int, sums: Tensor) -> None:
        """Start both ways of now(x)."""
        shared = batch.plan.groups[group].shared
        rows = shared.now_slots.size + shared.later_slots.size
        self._everywhere.begin_update(batch, group, sums[:rows])
        self._at_homes.begin_update(batch, group, sums[rows:])

    def update_early(self, batch: ReadyBatch, step: int) -> None:
        """Update now(x) of rows with homes."""
        self._at_homes.update_early(batch, step)

    def update(self, batch: ReadyBatch, step: int) -> None:
        """Update now(x) of both."""
        self._everywhere.update(batch, step)
        self._at_homes.update(batch, step)

    def finish_delayed(self) -> None:
        """Apply what is left of sums that all make, and end exchanges."""
        self._everywhere.finish_delayed()
        self._at_homes.finish_delayed()

    def only_read(self, batch: ReadyBatch) -> None:
        """Note that a batch of an evaluation has been computed."""
        self._everywhere.only_read(batch)
        self._at_homes.only_read(batch)

    def expect(self, plan: ReceivedPlan) -> None:
        """Learn that the rows which a batch fetches are here."""
        self._everywhere.expect(plan)
        self._at_homes.expect(plan)

    def advance(self) -> bool:
        """Move both on."""
        is_summing = self._everywhere.advance()
        return self._at_homes.advance() or is_summing

    def awaited(self) -> list[Awaited]:
        """What both go on behind."""
        return [*self._everywhere.awaited(), *self._at_homes.awaited()]

    def is_ready(self, plan: ReceivedPlan) -> bool:
        """Whether both are."""
        return self._everywhere.is_ready(plan) and self._at_homes.is_ready(plan)

    def may_retire(self, plan: ReceivedPlan) -> bool:
        """Whether both say so."""
        return self._everywhere.may_retire(plan) and self._at_homes.may_retire(plan)

    def restart(self) -> None:
        """Begin a new segment."""
        self._everywhere.restart()
        self._at_homes.restart()
