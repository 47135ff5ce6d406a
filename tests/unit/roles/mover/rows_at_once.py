"""A `RowSharing` of a trainer that waits for no other."""

from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import Haste
from bagpipe_hpc.plan.batch_plan import ReceivedPlan


class NothingAwaited:
    """Names no request that a mover could wait for."""

    def awaited(self) -> list[Awaited]:
        """Nothing."""
        return []


class NothingToSum(NothingAwaited):
    """No sum of dense gradients is under way."""

    def advance(self) -> Haste:
        """Never again."""
        return Haste.NONE


class RowsAtOnce(NothingAwaited):
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
