"""Write-backs of a trainer: rows that leave its cache, group by group, and the movers' barrier behind each group.

For retire group c the retired slots are gathered and put to their servers, and what the plan adds to rows is added.
Then the trainer comes to the barrier; once all have come, every trainer's writes of c are at the servers. Where
trainers add to each other's rows, they meet there before they do, for others may still look up what these rows were,
and between two rounds of additions.

Nothing here waits: two puts and a barrier may be under way at once, so that a group is put while the other trainers
come to the barrier of the one before.
"""

import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bagpipe_hpc.kernels.device import Device, Mark
from bagpipe_hpc.mpi.group_barrier import GroupBarrier
from bagpipe_hpc.mpi.rows.transfer import PendingRows
from bagpipe_hpc.plan.batch_plan import NO_GROUP, Additions, ReceivedPlan
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.roles.mover.rows_under_way import advance_all
from bagpipe_hpc.step.sharing.contract import RowSharing
from bagpipe_hpc.telemetry.trace import Trace


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


class WriteBacks:
    """Puts rows to the servers when they leave. Its steps are called by the mover, again and again.

    Args:
        traffic: between the servers and this trainer, of each group of tables.
        barrier: the movers' barrier.
        rows: what other trainers' updates of rows are waited for.
        retired: is given the plan of each group once it is at the servers, of all trainers.
        trace: this rank's timeline.
        writes_apart: whether a group may be put beside the one before (`Policy.writes_apart`).
        adds_rows: whether trainers add to each other's rows (`Policy.adds_rows`).

    Attributes:
        newest: the group that came to the servers last, `NO_GROUP` before the first of a segment.
    """

    def __init__(
        self,
        traffic: Sequence[RowTraffic],
        barrier: GroupBarrier,
        rows: RowSharing,
        retired: Callable[[ReceivedPlan], None],
        trace: Trace,
        *,
        writes_apart: bool,
        adds_rows: bool,
    ) -> None:
        self.newest = NO_GROUP
        self._traffic = traffic
        self._device: Device = traffic[0].cache.device
        self._barrier = barrier
        self._barrier_since_s = 0.0
        self._rows = rows
        self._retired = retired
        self._trace = trace
        self._writes_apart = writes_apart
        self._adds_rows = adds_rows
        self._most_at_once = min(part.most_at_once for part in traffic)
        self._to_leave: queue.SimpleQueue[tuple[ReceivedPlan, Mark]] = queue.SimpleQueue()
        self._leaving: tuple[ReceivedPlan, Mark] | None = None
        self._under_way: deque[WriteBack] = deque()
        self._written_s = 0.0
        self._at_barrier: ReceivedPlan | None = None

    def leave(self, plan: ReceivedPlan, updated: Mark) -> None:
        """Let a group leave that a plan retires; called by the compute thread.

        Args:
            plan: of the batch behind which it leaves.
            updated: when the rows' last updates are made.
        """
        self._to_leave.put((plan, updated))

    @property
    def pending(self) -> list[PendingRows]:
        """What the first group under way still has to do."""
        return self._under_way[0].pending if self._under_way else []

    def start(self) -> bool:
        """Start to put this trainer's share of the next group, with optimizer state; what it adds comes after that."""
        if not self._may_start():
            return False
        if self._leaving is None and not self._to_leave.empty():
            self._leaving = self._to_leave.get()
        if self._leaving is None or not self._rows.may_retire(self._leaving[0]):
            return False
        (plan, updated), self._leaving = self._leaving, None
        self._device.follow(updated)  # also where nothing is written back: the slots get other rows
        since_s = time.perf_counter()
        pending = []
        for traffic, group in zip(self._traffic, plan.groups, strict=True):
            traffic.note(group.own)
            pending.append(traffic.put(group.own))
        rounds = plan.addition_rounds
        if self._adds_rows:
            rounds = rounds or ({},)  # who adds nothing meets those who do
        self._under_way.append(WriteBack(plan, pending, since_s, rounds))
        return True

    def _may_start(self) -> bool:
        """Whether the next group's turn has come."""
        if self._writes_apart:
            return len(self._under_way) < self._most_at_once
        return not (self._under_way or self._barrier.is_entered)

    def enter_barrier(self) -> bool:
        """Once this trainer's share is at the servers, put and added, come to the barrier; so before each round."""
        if not self._under_way or not advance_all(self._under_way[0].pending):
            return False
        done = self._under_way[0]
        if not (done.left or done.is_over):
            self._note(done)
        if self._barrier.is_entered:
            return False
        if done.left:
            self._under_way[0] = replace(done, pending=[])
            self._barrier.enter(f"what comes before additions of group {done.plan.retire_group}")
            return True
        self._under_way.popleft()
        self._barrier_since_s = time.perf_counter()
        self._at_barrier = done.plan
        self._barrier.enter(f"group {done.plan.retire_group} after batch {done.plan.batch}")
        return True

    def _note(self, done: WriteBack) -> None:
        """Note that all rows of the first group are at the servers; of two at a time the second's time begins there."""
        since_s, self._written_s = max(done.since_s, self._written_s), time.perf_counter()
        if count := done.plan.rows_written:
            self._trace.add("write back", since_s, self._written_s, "mover, writing back", rows=count)
        self._under_way[0] = replace(done, is_over=True)

    def leave_barrier(self) -> bool:
        """Once all have come: a group is at the servers, or a round of additions begins."""
        if not self._barrier.poll():
            return False
        if self._at_barrier is None:  # what comes before a round of additions has ended everywhere
            self._start_round(self._under_way[0])
            return True
        done, self._at_barrier = self._at_barrier, None
        self._trace.add(
            "barrier", self._barrier_since_s, time.perf_counter(), "movers' barrier", group=done.retire_group
        )
        self.newest = NO_GROUP if done.is_closing else done.retire_group
        self._retired(done)
        return True

    def _start_round(self, write_back: WriteBack) -> None:
        """Add what is added in the next round."""
        additions, *left = write_back.left
        adds = [self._traffic[group].add(changes) for group, changes in additions.items()]
        self._under_way[0] = replace(write_back, pending=adds, left=tuple(left))
