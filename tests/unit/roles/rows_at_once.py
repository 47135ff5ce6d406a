"""A `RowSharing` of a trainer that waits for no other."""

from bagpipe_hpc.mpi.waiting import Haste
from bagpipe_hpc.plan.batch_plan import ReceivedPlan


def nothing_to_sum() -> Haste:
    """No sum of dense gradients is under way."""
    return Haste.NONE


class RowsAtOnce:
    """What a mover asks of it; everything is ready at once."""

    def expect(self, plan: ReceivedPlan) -> None:
        """Nothing."""

    def advance(self) -> bool:
        """Nothing is under way."""
        return False

    def is_ready(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def may_retire(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def restart(self) -> None:
        """Nothing."""
