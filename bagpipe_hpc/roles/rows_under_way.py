"""What a mover has under way: fetches, write-backs, and sums that the compute thread has started."""

from dataclasses import dataclass
from typing import Protocol

from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.rows.transfer import PendingRows
from bagpipe_hpc.mpi.waiting import Haste
from bagpipe_hpc.plan.batch_plan import Additions, ReceivedPlan
from bagpipe_hpc.roles.row_traffic import FetchedRows


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


@dataclass(frozen=True)
class WriteBack:
    """Rows of a group of batches on their way to the servers.

    Attributes:
        plan: of the group.
        pending: the put, and then the add, of each group of tables.
        since_s: when the put started.
        left: what is added once that is complete, round by round, by the number of the group of tables.
        is_over: whether all is at the servers, as the timeline has it.
    """

    plan: ReceivedPlan
    pending: list[PendingRows]
    since_s: float
    left: tuple[dict[int, Additions], ...]
    is_over: bool = False


class DenseUnderWay(Protocol):
    """Sums of dense gradients, which the compute thread starts."""

    def advance(self) -> Haste:
        """Move them on; how soon to do so again. Never waits."""

    def awaited(self) -> list[Awaited] | None:
        """What they go on behind, until `advance` is called again; None if that cannot be said."""
