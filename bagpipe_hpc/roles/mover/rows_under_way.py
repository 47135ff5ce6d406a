"""Rows that a mover has under way."""

from collections.abc import Iterable
from dataclasses import dataclass

from bagpipe_hpc.mpi.rows.transfer import PendingRows
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.roles.mover.row_traffic import FetchedRows


@dataclass(frozen=True)
class Fetch:
    """Rows of some batches on their way to the caches.

    Attributes:
        plans: of the batches.
        groups: the rows of each group of tables.
        since_s: when it started.
    """

    plans: list[ReceivedPlan]
    groups: list[FetchedRows]
    since_s: float

    @property
    def pending(self) -> list[PendingRows]:
        """What has to be complete."""
        return [group.pending for group in self.groups]


def advance_all(pending: Iterable[PendingRows]) -> bool:
    """Move all calls on; whether all are complete."""
    are_complete = [rows.advance() for rows in pending]
    return all(are_complete)
