"""Tells servers whose rows lie on disk which rows will be fetched and written back, in the order of their use."""

from collections import deque
from collections.abc import Sequence

from bagpipe_hpc.plan.batch_plan import NO_GROUP, ReceivedPlan
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic


class ReadAhead:
    """Announces what plans ask for; where no server wants to know, it does nothing.

    What plan g writes back is on its way before anything is fetched that waits for group g: that is the order.

    Args:
        traffic: between the servers and this trainer, of each group of tables.
    """

    def __init__(self, traffic: Sequence[RowTraffic]) -> None:
        self._traffic = traffic
        self._is_wanted = any(part.reads_ahead for part in traffic)
        self._write_backs: deque[ReceivedPlan] = deque()
        """Plans whose write-backs are not announced yet."""

    def announce(self, plan: ReceivedPlan) -> None:
        """Tell the servers what a plan fetches, and before it what earlier ones, or it, write back until then."""
        if not self._is_wanted:
            return
        if plan.retire_group != NO_GROUP:
            self._write_backs.append(plan)
        while self._write_backs and (plan.is_closing or self._write_backs[0].retire_group <= plan.prefetch_after):
            for traffic, part in zip(self._traffic, self._write_backs.popleft().groups, strict=True):
                traffic.announce_put(part.own)
        for traffic, part in zip(self._traffic, plan.groups, strict=True):
            traffic.announce_fetch(part)
