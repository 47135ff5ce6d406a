"""The mover: a trainer's second thread, which brings rows before they are needed and writes them back.

For retire group c it gathers the retired slots, puts them to their servers and flushes, then enters the movers'
barrier; once all have come, every trainer's writes of c are at the servers and the rows of the next admissible batches
are fetched. It never blocks in the barrier, so it goes on receiving plans and fetching what is already admissible.
"""

import queue
import threading
import time
from collections import deque

import numpy as np

from bagpipe_hpc.batch_plan import NO_GROUP, SharedPlan, TrainerPlan
from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.device import Mark
from bagpipe_hpc.mpi.group_barrier import GroupBarrier
from bagpipe_hpc.mpi.plan_channel import PlanReceiver
from bagpipe_hpc.mpi.row_window import RowWindow
from bagpipe_hpc.roles.job import Job
from bagpipe_hpc.roles.ready_batch import NO_INPUTS, BatchInputs, ReadyBatch
from bagpipe_hpc.roles.slice_reader import SliceReader
from bagpipe_hpc.trace import Trace

_SHORTEST_PAUSE_S = 20e-6
_LONGEST_PAUSE_S = 500e-6
_WATCH_EVERY_S = 0.1


class Mover:
    """Moves rows between the servers and the cache, in a thread of its own between `start` and `join`.

    Args:
        job: the run.
        receiver: where the plans come from.
        window: the rows at the servers; no other thread of this rank uses it.
        cache: the rows at this trainer.
        barrier: the movers' barrier.
        reader: dense features and labels of this trainer's slices.
        group_batches: most batches whose rows are fetched in one call.
        trace: this rank's timeline.
    """

    def __init__(
        self,
        job: Job,
        receiver: PlanReceiver,
        window: RowWindow,
        cache: RowCache,
        barrier: GroupBarrier,
        reader: SliceReader,
        group_batches: int,
        trace: Trace,
    ) -> None:
        self._job = job
        self._receiver = receiver
        self._window = window
        self._cache = cache
        self._device = cache.device
        self._barrier = barrier
        self._reader = reader
        self._group_batches = group_batches
        self._trace = trace
        self._barrier_since_s = 0.0
        self._segments = iter(job.schedule)
        self._segment = next(self._segments)
        self._plans_left = job.total_plans
        self._segments_left = len(job.schedule)
        self._incoming: deque[tuple[SharedPlan, TrainerPlan]] = deque()
        self._ready: queue.SimpleQueue[ReadyBatch] = queue.SimpleQueue()
        self._to_retire: queue.SimpleQueue[tuple[ReadyBatch, Mark]] = queue.SimpleQueue()
        self._retiring: SharedPlan | None = None
        self._retired = NO_GROUP
        self._is_closing = False
        self._drained = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="mover", daemon=True)

    # Called by the compute thread.

    def start(self) -> None:
        """Start moving; the servers' first values must be there."""
        self._reader.start_segment(self._segment)
        self._cache_made = self._device.mark()
        self._thread.start()

    def next_batch(self) -> ReadyBatch:
        """The next batch of the run, once its rows are in the cache.

        Raises:
            WaitTimeoutError: they did not come in time.
        """
        deadline = time.monotonic() + self._job.config.train.timeout_s
        while True:
            try:
                batch = self._ready.get(timeout=_WATCH_EVERY_S)
                self._device.follow(batch.ready, *batch.inputs.tensors())
                return batch
            except queue.Empty:
                self.check()
                if time.monotonic() > deadline:
                    raise WaitTimeoutError(
                        f"waited {self._job.config.train.timeout_s:.0f} s for the rows of the next batch: "
                        f"{len(self._incoming)} plans are here, group {self._retired} is retired"
                    ) from None

    def retire(self, batch: ReadyBatch) -> None:
        """Start the write-backs in a batch's plan, after all updates that the device has been given so far."""
        self._to_retire.put((batch, self._device.mark()))

    def wait_drained(self) -> None:
        """After retiring a closing batch: wait until all rows of all trainers are back at the servers.

        Raises:
            WaitTimeoutError: they were not in time.
        """
        deadline = time.monotonic() + 2 * self._job.config.train.timeout_s  # one for the puts, one for the barrier
        while not self._drained.wait(_WATCH_EVERY_S):
            self.check()
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"waited for the servers to take the rows of group {self._retired} and later")
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

    def _run(self) -> None:
        try:
            with self._device.own_stream():
                self._device.follow(self._cache_made)
                self._move_all()
        except BaseException as failure:  # noqa: BLE001 - handed to the compute thread, which ends the job
            self._failure = failure

    def _move_all(self) -> None:
        steps = (self._finish_retire, self._start_retire, self._receive, self._prefetch)
        pause_s = _SHORTEST_PAUSE_S
        while self._segments_left:
            if sum(step() for step in steps):
                pause_s = _SHORTEST_PAUSE_S
            else:
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)

    def _receive(self) -> bool:
        """Take a plan that has arrived."""
        plan = self._receiver.poll() if self._plans_left else None
        if plan is None:
            return False
        self._plans_left -= 1
        self._incoming.append(plan)
        return True

    def _start_retire(self) -> bool:
        """Write the next group's rows back and come to the barrier."""
        if self._barrier.is_entered or self._to_retire.empty():
            return False
        batch, updated = self._to_retire.get()
        self._device.follow(updated)  # also where nothing is written back: the slots get other rows
        self.write_back(batch.own)
        self._retiring = batch.shared
        self._barrier_since_s = time.perf_counter()
        self._barrier.enter(f"group {batch.shared.retire_group} after batch {batch.shared.batch}")
        return True

    def write_back(self, plan: TrainerPlan) -> None:
        """Put this trainer's share of a group, with optimizer state, and flush."""
        if plan.write_back_rows.size:
            with self._trace.span("write back", rows=plan.write_back_rows.size):
                records = self._cache.gather_records(self._device.to_device(plan.write_back_slots))
                self._window.put(plan.write_back_rows, records)

    def _finish_retire(self) -> bool:
        """Note that a group is at the servers; after a closing one, turn to the next segment."""
        if not self._barrier.poll():
            return False
        assert self._retiring is not None, "the barrier was entered for a group"
        self._retired = self._retiring.retire_group
        self._trace.add("barrier", self._barrier_since_s, time.perf_counter(), "movers' barrier", group=self._retired)
        if self._retiring.is_closing:
            self._retired = NO_GROUP
            self._is_closing = False
            self._segments_left -= 1
            segment = next(self._segments, None)
            if segment is not None:
                self._segment = segment
                self._reader.start_segment(segment)
            self._drained.set()
        return True

    def _prefetch(self) -> bool:
        """Fetch the next admissible batch, or several where the compute thread has as many left to do."""
        if self._is_closing or not self._incoming:
            return False
        if self._incoming[0][0].is_closing:
            self._is_closing = True
            self._ready.put(ReadyBatch(*self._incoming.popleft(), NO_INPUTS, None))
            return True
        # No more in a call than are ready: while they come, the compute thread does not run out of batches.
        most = min(max(1, self._ready.qsize()), self._group_batches)
        plans: list[tuple[SharedPlan, TrainerPlan]] = []
        while self._incoming and len(plans) < most and self.is_admissible(self._incoming[0][0]):
            plans.append(self._incoming.popleft())
        if not plans:
            return False
        self._fetch(plans)
        for shared, own in plans:
            inputs = self._bring_inputs(shared, own)
            self._ready.put(ReadyBatch(shared, own, inputs, self._device.mark()))
        return True

    def is_admissible(self, plan: SharedPlan) -> bool:
        """Whether every earlier update of a batch's rows is at the servers."""
        return not plan.is_closing and plan.prefetch_after <= self._retired

    def _fetch(self, plans: list[tuple[SharedPlan, TrainerPlan]]) -> None:
        rows = np.concatenate([part.fetch_rows for plan in plans for part in plan])
        slots = np.concatenate([part.fetch_slots for plan in plans for part in plan])
        if rows.size:
            with self._trace.span("fetch", rows=rows.size, batches=len(plans)):
                records = self._device.new_array((rows.size, self._job.record.width))
                self._cache.scatter(self._device.to_device(slots), self._window.get(rows, records))

    def _bring_inputs(self, shared: SharedPlan, own: TrainerPlan) -> BatchInputs:
        to_device = self._device.to_device
        dense, labels = self._reader.read(shared.batch)
        slots = to_device(np.concatenate((shared.now_slots, shared.later_slots, own.private_slots)))
        positions = to_device(own.positions)
        order = self._cache.operations.order_look_ups(positions, slots.numel()) if self._segment.is_training else None
        return BatchInputs(to_device(dense), to_device(labels), slots, positions, order)
