"""Rows of a trainer that is alone: it shares none of them, and waits for nobody (`cache.sharing=replicated`)."""

from torch import Tensor

from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.sharing.contract import RowUpdates


class LoneRows:
    """The `RowSharing` of one trainer. Nothing is summed, and all rows of a batch are updated at once.

    Args:
        updates: applies gradients.
    """

    def __init__(self, updates: RowUpdates) -> None:
        self._updates = updates
        self._begun: list[tuple[int, Tensor]] = []

    def start(self, batch: ReadyBatch) -> None:
        """Nothing: rows are read as the mover has brought them."""

    def advance_delayed(self) -> None:
        """Nothing is delayed."""

    def begin_update(self, batch: ReadyBatch, group: int, sums: Tensor) -> None:  # noqa: ARG002
        """Note the gradients of a group of tables."""
        self._begun.append((group, sums))

    def update_early(self, batch: ReadyBatch, step: int) -> None:
        """Nothing: no other trainer waits for what this one updates."""

    def update(self, batch: ReadyBatch, step: int) -> None:
        """Update the rows of a batch."""
        begun, self._begun = self._begun, []
        for group, sums in begun:
            self._updates.apply(group, batch.inputs.look_ups[group].slots, sums, step)

    def finish_delayed(self) -> None:
        """Nothing is delayed."""

    def only_read(self, batch: ReadyBatch) -> None:
        """Nothing: no copies are kept."""

    def expect(self, plan: ReceivedPlan) -> None:
        """Nothing: all rows of a batch are fetched."""

    def advance(self) -> bool:
        """Nothing is under way."""
        return False

    def awaited(self) -> list[Awaited]:
        """Nothing."""
        return []

    def is_ready(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        """Whether a batch is ready: as soon as its rows are fetched."""
        return True

    def may_retire(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        """Whether a group may leave: the compute thread says so when it has applied everything."""
        return True

    def restart(self) -> None:
        """Nothing to forget."""
