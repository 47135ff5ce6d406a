"""The mover: a trainer's second thread, which brings rows before they are needed and lets them leave.

Rows that leave are written back (`write_backs.py`). Once all trainers' writes of retire group c are at the servers, the
rows of the next admissible batches are fetched. Where a batch has several micro-batches, all but the last need no row
that is fetched for it, and are handed over before.

It waits for nothing: two puts, two gets, a barrier and a plan may be under way at once. So rows travel both ways over a
link, and servers gather or take those of one call while the other's are on it. Sums of gradients that the compute
thread has started go on here as well, while that computes.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.device import Mark
from bagpipe_hpc.mpi.group_barrier import GroupBarrier
from bagpipe_hpc.mpi.patience import Patience
from bagpipe_hpc.mpi.plan_channel import PlanReceiver
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.rows.transfer import PendingRows, advance_any
from bagpipe_hpc.mpi.waiting import Haste
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.planning.policy_choice import policy_class
from bagpipe_hpc.roles.mover.batch_loader import BatchLoader
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.mover.read_ahead import ReadAhead
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.roles.mover.rows_under_way import Fetch, advance_all
from bagpipe_hpc.roles.mover.write_backs import WriteBacks
from bagpipe_hpc.roles.trainer.sums_thread import DenseUnderWay
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.ready_batch import NO_INPUTS, ReadyBatch
from bagpipe_hpc.step.sharing.contract import RowSharing
from bagpipe_hpc.step.slice_reader import SliceReader
from bagpipe_hpc.telemetry.trace import Trace

_WATCH_EVERY_S = 0.1


@dataclass(frozen=True)
class MoverSettings:
    """What a mover knows of its run.

    Attributes:
        schedule: the run's segments, in order.
        group_batches: most batches whose rows are fetched in one call.
        timeout_s: longest wait for a plan, for rows, or for the other movers.
        writes_apart: whether a group may be put beside the one before (`Policy.writes_apart`).
        adds_rows: whether trainers add to each other's rows (`Policy.adds_rows`).
    """

    schedule: tuple[Segment, ...]
    group_batches: int
    timeout_s: float
    writes_apart: bool
    adds_rows: bool = False

    @classmethod
    def of(cls, run: Run, group_batches: int, timeout_s: float) -> "MoverSettings":
        """Those of a run whose window has groups of so many batches."""
        policy = policy_class(run.config.policy.name)
        return cls(run.schedule, group_batches, timeout_s, policy.writes_apart, policy.adds_rows)


class Mover:
    """Moves rows between the servers and the cache, in a thread of its own between `start` and `join`.

    Args:
        settings: what it knows of the run.
        receiver: where the plans come from.
        traffic: between the servers and this trainer, of each group of tables.
        barrier: the movers' barrier.
        reader: dense features and labels of this trainer's slices.
        trace: this rank's timeline.
        rows: what other trainers' updates of rows are waited for, and moved on while the compute thread computes.
        dense: sums of dense gradients.
        pace: how often it looks; rung by whoever gives it something to move on.
    """

    def __init__(
        self,
        settings: MoverSettings,
        receiver: PlanReceiver,
        traffic: Sequence[RowTraffic],
        barrier: GroupBarrier,
        reader: SliceReader,
        trace: Trace,
        rows: RowSharing,
        dense: DenseUnderWay,
        pace: MoverPace,
    ) -> None:
        self._settings = settings
        self._receiver = receiver
        self._traffic = traffic
        self._device = traffic[0].cache.device
        self._cache_made: Mark = None
        self._barrier = barrier
        self._loader = BatchLoader(reader, [part.cache for part in traffic])
        self._read_ahead = ReadAhead(traffic)
        self._trace = trace
        self._rows = rows
        self._dense = dense
        self._pace = pace
        self._segments = iter(settings.schedule)
        self._segment = next(self._segments)
        self._coming: Segment | None = None
        self._heard: queue.SimpleQueue[tuple[Heard, ...]] = queue.SimpleQueue()
        self._now_heard = self._segment.heard
        self._planned_segments = 0
        self._finished_segments = 0
        self._last_segment = len(settings.schedule)
        self._incoming: deque[ReceivedPlan] = deque()
        self._ready: queue.SimpleQueue[ReadyBatch] = queue.SimpleQueue()
        self._most_at_once = min(part.most_at_once for part in traffic)
        self._fetches: deque[Fetch] = deque()
        self._fetched_s = 0.0
        self._write_backs = WriteBacks(
            traffic,
            barrier,
            rows,
            self._end_group,
            trace,
            writes_apart=settings.writes_apart,
            adds_rows=settings.adds_rows,
        )
        self._fetched: deque[ReadyBatch] = deque()
        self._begun: ReadyBatch | None = None
        self._is_closing = False
        self._drained = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="mover", daemon=True)

    # Called by the compute thread.

    def start(self) -> None:
        """Start moving; the servers' first values must be there."""
        self._loader.start_segment(self._segment)
        self._cache_made = self._device.mark()
        self._thread.start()

    def next_batch(self) -> ReadyBatch:
        """The next batch of the run, or the next micro-batch of one, once the rows that it looks up are in the cache.

        Raises:
            WaitTimeoutError: they did not come in time.
        """
        try:
            batch = self._ready.get_nowait()
        except queue.Empty:
            with self._pace.awaited():
                batch = self._await_batch()
        self._device.follow(batch.ready, *(() if batch.plan.is_closing else batch.inputs.tensors()))
        return batch

    def _await_batch(self) -> ReadyBatch:
        timeout_s = self._settings.timeout_s
        patience = Patience(timeout_s)
        while True:
            try:
                return self._ready.get(timeout=_WATCH_EVERY_S)
            except queue.Empty:
                self.check()
                if patience.is_over():
                    raise WaitTimeoutError.after(timeout_s, self._missing()) from None

    def _missing(self) -> str:
        """What keeps the next batch."""
        if self._fetched:
            return "the other trainers to send copies or gradients of rows that the next batch waits for"
        if not self._fetches and not self._incoming:
            return "the next plan of the oracle"
        retired = self._write_backs.newest
        return f"the rows of the next batch ({len(self._incoming)} plans are here, group {retired} is retired)"

    def retire(self, batch: ReadyBatch) -> None:
        """Start the write-backs in a batch's plan, after all updates that the device has been given so far."""
        self._write_backs.leave(batch.plan, self._device.mark())
        self._pace.ring()

    def tell(self, heard: tuple[Heard, ...]) -> None:
        """Behind an evaluation by which samples are ordered: say what was heard so far."""
        self._heard.put(heard)
        self._pace.ring()

    def wait_drained(self) -> None:
        """After retiring a closing batch: wait until all rows of all trainers are back at the servers.

        Raises:
            WaitTimeoutError: they were not in time.
        """
        timeout_s = 2 * self._settings.timeout_s  # one for the puts, one for the barrier
        patience = Patience(timeout_s)
        with self._pace.awaited():
            while not self._drained.wait(_WATCH_EVERY_S):
                self.check()
                if patience.is_over():
                    what = f"the rows of groups after {self._write_backs.newest} to be written back"
                    raise WaitTimeoutError.after(timeout_s, what)
        self._drained.clear()

    def check(self) -> None:
        """Raise what ended the mover, if anything did."""
        if self._failure is not None:
            raise self._failure

    def join(self) -> None:
        """Wait for the thread after the last segment."""
        while self._thread.is_alive():
            self._thread.join(_WATCH_EVERY_S)
        self.check()

    # The mover's own thread.

    def _loop(self) -> None:
        try:
            with self._device.own_stream():
                self._device.follow(self._cache_made)
                self._move_all()
        except BaseException as failure:  # noqa: BLE001 - handed to the compute thread, which ends the job
            self._failure = failure

    def _move_all(self) -> None:
        steps = (
            self._write_backs.leave_barrier,
            self._begin_segment,
            self._write_backs.enter_barrier,
            self._write_backs.start,
            self._receive,
            self._finish_fetch,
            self._hand_over,
            self._begin_batch,
            self._start_fetch,
        )
        while self._finished_segments < self._last_segment:
            self._pace.begin_round()
            are_rows_moving, dense = self._rows.advance(), self._dense.advance()
            if not sum(step() for step in steps):
                self._await_change(dense, are_rows_moving=are_rows_moving)

    def _await_change(self, dense: Haste, *, are_rows_moving: bool) -> None:
        """Sleep until somebody rings or something has come, and ask meanwhile for nothing but what is under way.

        Args:
            dense: how soon sums of dense gradients want to be moved on.
            are_rows_moving: whether rows between trainers are under way: they make batches ready, and let groups leave.
        """
        next_fetch = self._fetches[0].pending if self._fetches else []
        pending = [rows for rows in (*next_fetch, *self._write_backs.pending) if not rows.is_complete]
        steps = [self._receive]
        if self._barrier.is_entered:
            steps.append(self._write_backs.leave_barrier)
        if are_rows_moving:
            steps += [self._hand_over, self._write_backs.start]
        while not self._pace.rest(self._haste(dense, is_soon=bool(pending) or are_rows_moving), self._awaited(pending)):
            are_rows_moving = are_rows_moving and self._rows.advance()
            dense = self._dense.advance() if dense else dense
            if (pending and advance_any(*pending)) or any(step() for step in steps):
                return

    def _awaited(self, pending: Iterable[PendingRows]) -> list[Awaited] | None:
        """What other ranks do first of all that is under way; None where it has to be asked for."""
        dense = self._dense.awaited()
        if dense is None:
            return None
        plan = self._receiver.awaited() if self._planned_segments < self._last_segment else []
        calls = [group for rows in pending for group in rows.awaited()]
        return [*calls, *self._barrier.awaited(), *plan, *self._rows.awaited(), *dense]

    def _haste(self, dense: Haste, *, is_soon: bool) -> Haste:
        """How soon to look again; the next plan can wait while one is here."""
        if is_soon:
            return Haste.SOON
        is_planned = bool(self._incoming) or self._planned_segments >= self._last_segment
        if self._barrier.is_entered or self._receiver.is_receiving or not is_planned:
            return max(dense, Haste.CALM)
        return dense

    def _receive(self) -> bool:
        """Take a plan that has arrived; where a segment is closed before its first batch, no other follows."""
        plan = self._receiver.poll() if self._planned_segments < self._last_segment else None
        if plan is None:
            return False
        self._incoming.append(plan)
        self._read_ahead.announce(plan)
        if plan.is_closing:
            self._planned_segments += 1
            if not plan.batch:
                self._last_segment = self._planned_segments
        return True

    def _end_group(self, plan: ReceivedPlan) -> None:
        """A group is at the servers: after a closing one, turn to the next segment."""
        if not plan.is_closing:
            return
        self._rows.restart()
        self._finished_segments += 1
        if self._finished_segments < self._last_segment:
            self._coming = next(self._segments)
        self._drained.set()

    def _begin_segment(self) -> bool:
        """Turn to the next segment: behind an evaluation that orders its samples, once the compute thread has told."""
        if self._coming is None:
            return False
        if self._segment.is_heard:
            if self._heard.empty():
                return False
            self._now_heard = self._heard.get()
        self._segment, self._coming = replace(self._coming, heard=self._now_heard), None
        self._loader.start_segment(self._segment)
        self._is_closing = False
        return True

    def _begin_batch(self) -> bool:
        """Let the compute thread have all micro-batches of the next batch but the last, before its rows are fetched."""
        if self._fetches or self._begun or self._is_closing or not self._incoming:
            return False
        if self._incoming[0].micro_batches is None:
            return False
        *early, self._begun = self._loader.load(self._incoming[0])
        self._fetched += early
        return True

    def _start_fetch(self) -> bool:
        """Start to fetch the next admissible batch, or several where the compute thread has as many left to do."""
        if not self._may_fetch():
            return False
        if self._incoming[0].is_closing:
            self._is_closing = True
            self._fetched.append(ReadyBatch(self._incoming.popleft(), NO_INPUTS, None))
            return True
        # No more in a call than are ready: while they come, the compute thread does not run out of batches.
        under_way = sum(len(fetch.plans) for fetch in self._fetches)
        most = min(max(1, self._ready.qsize() + len(self._fetched)), self._settings.group_batches - under_way)
        plans: list[ReceivedPlan] = []
        while self._incoming and len(plans) < most and self._is_admissible(self._incoming[0]):
            if plans and (plans[-1].micro_batches is not None or self._incoming[0].micro_batches is not None):
                break  # a batch of several is fetched alone: all but the last are handed over before
            plans.append(self._incoming.popleft())
        if not plans:
            return False
        since_s = time.perf_counter()
        parts = zip(*(plan.groups for plan in plans), strict=True)
        groups = [traffic.start_fetch(part) for traffic, part in zip(self._traffic, parts, strict=True)]
        self._fetches.append(Fetch(plans, groups, since_s))
        return True

    def _may_fetch(self) -> bool:
        """Whether the next plan's turn has come; beside another fetch only if its batch is begun behind its rows."""
        if self._is_closing or not self._incoming:
            return False
        if not self._fetches:
            return True
        plan = self._incoming[0]
        waits_for_others = plan.is_closing or plan.micro_batches is not None or self._begun is not None
        return len(self._fetches) < self._most_at_once and not waits_for_others

    def _finish_fetch(self) -> bool:
        """Once the rows of the first fetch are here, hand their batches to the compute thread."""
        if not self._fetches or not advance_all(self._fetches[0].pending):
            return False
        done = self._fetches.popleft()
        for traffic, fetched in zip(self._traffic, done.groups, strict=True):
            traffic.keep(fetched)
        if count := sum(fetched.slots.size for fetched in done.groups):
            since_s, self._fetched_s = max(done.since_s, self._fetched_s), time.perf_counter()
            counts = {"rows": count, "batches": len(done.plans)}
            self._trace.add("fetch", since_s, self._fetched_s, "mover, fetching", **counts)
        for plan in done.plans:
            self._rows.expect(plan)
            begun, self._begun = self._begun, None
            self._fetched += [begun] if begun else self._loader.load(plan)
        return True

    def _hand_over(self) -> bool:
        """Give the compute thread a batch when other trainers have brought what it needs of them."""
        if not self._fetched or not self._rows.is_ready(self._fetched[0].plan):
            return False
        self._ready.put(replace(self._fetched.popleft(), ready=self._device.mark()))
        return True

    def _is_admissible(self, plan: ReceivedPlan) -> bool:
        """Whether every earlier update of a batch's rows is at the servers."""
        return not plan.is_closing and plan.prefetch_after <= self._write_backs.newest
