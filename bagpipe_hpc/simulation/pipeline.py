"""One trainer's compute thread and mover, the oracle, and the links between them, carrying out plans in simulated time.

The rules are those of `roles/trainer/trainer.py`, `step/train_step.py`, `roles/mover/mover.py` and
`mpi/plan_channel.py`. All trainers do the same at the same time, so one stands for all; a collective operation ends
when this one's share does.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.batch_load import BatchLoad, Hop, Hops
from bagpipe_hpc.simulation.cluster import (
    MEMORY,
    MOVER,
    ORACLE_OUT,
    SERVERS_IN,
    SERVERS_OUT,
    TRAINER_IN,
    TRAINER_OUT,
    Cluster,
)
from bagpipe_hpc.simulation.dense_summing import DenseSumming
from bagpipe_hpc.simulation.events import Event, Process, Simulation, Sleep, Transfer
from bagpipe_hpc.simulation.hop_messages import HopMessages
from bagpipe_hpc.simulation.step_order import StepOrder


@dataclass
class StepTimes:
    """Times of a step, in seconds.

    Attributes:
        start_s: when the step before ended.
        end_s: when this step ended.
        wait_rows_s: wait for the rows of the batch.
        wait_reductions_s: wait for sums of gradients.
    """

    start_s: float = 0.0
    end_s: float = 0.0
    wait_rows_s: float = 0.0
    wait_reductions_s: float = 0.0


@dataclass
class _WriteBack:
    """How far the write-back of a group's rows has come."""

    is_put: Event = field(default_factory=Event)
    is_at_barrier: Event = field(default_factory=Event)
    is_retired: Event = field(default_factory=Event)

    @classmethod
    def over(cls) -> "_WriteBack":
        """One that is complete, so that nobody waits for it."""
        return cls(_happened(), _happened(), _happened())


class Pipeline:
    """A segment's plans on a cluster.

    Args:
        loads: the loads of the plans, that of the closing plan last.
        window: the window that they were planned with.
        cluster: who computes and sends how fast.
        record: what travels with a row.
        order: when gradients leave within a step's compute.
    """

    def __init__(
        self, loads: Sequence[BatchLoad], window: Window, cluster: Cluster, record: RowRecord, order: StepOrder
    ) -> None:
        self._loads = loads
        self._batches = len(loads) - 1
        self._window = window
        self._cluster = cluster
        self._record = record
        self._order = order
        self._weight_bytes = 4 * record.embedding_dim
        self._simulation = Simulation(cluster.capacities())
        self._planned = [Event() for _ in loads]
        self._ready = [Event() for _ in loads]
        self._done = [Event() for _ in loads]
        self._to_retire: deque[BatchLoad] = deque()
        self._retired = 0
        self._taken = 0
        self._asked = 0
        self._fetched = 0
        self._is_waiting = False
        self._news = Event()  # wakes the mover: something that it may be waiting for has happened
        self.steps = [StepTimes() for _ in range(self._batches)]

    def run(self) -> list[StepTimes]:
        """Simulate the segment, and return the times of each training step."""
        for process in (self._oracle(), self._compute(), self._write_back(), self._fetch()):
            self._simulation.start(process)
        self._simulation.run()
        return self.steps

    def _oracle(self) -> Process:
        ahead = self._window.plans_ahead
        sent = _happened()
        for number, load in enumerate(self._loads):
            yield Sleep(load.samples * self._cluster.plan_s_per_sample)
            if number >= ahead:
                yield self._done[number - ahead]
            yield sent
            sent = self._planned[number]
            self._simulation.start(self._send_plan(number))

    def _send_plan(self, number: int) -> Process:
        """Send a plan while the next one is made."""
        load = self._loads[number]
        yield Transfer(load.plan_bytes, (ORACLE_OUT,))
        yield Transfer(load.plan_bytes_in, (TRAINER_IN,))
        self._tell(self._planned[number])

    def _compute(self) -> Process:
        now = later = home = exchanged = copies = _happened()
        order, earlier = self._order, DenseSumming(self._simulation, self._cluster, ())
        for number, (load, times) in enumerate(zip(self._loads[:-1], self.steps, strict=True)):
            times.start_s = self._simulation.now_s
            yield self._ready[number]
            self._taken += 1
            times.wait_rows_s = self._simulation.now_s - times.start_s
            compute_s = self._cluster.compute_s(load.slice_samples)
            left, waited_s = 1.0, 0.0
            for share, dense_sum in self._pauses(number):
                yield Sleep((left - 1.0 + share) * compute_s)
                left = 1.0 - share
                waits_since_s = self._simulation.now_s
                yield from self._awaited(copies) if dense_sum is None else earlier.wait(dense_sum)
                waited_s += self._simulation.now_s - waits_since_s
            sums = DenseSumming(self._simulation, self._cluster, order.sums)
            has_left, has_updated, begun_s = False, False, self._begins_s(load.now_home)
            for behind, dense_sum in order.moments():
                yield Sleep((left - behind) * compute_s)
                left = behind
                if dense_sum is not None:
                    yield from sums.start(dense_sum)
                else:
                    now = self._sum(load.reduced_now * self._weight_bytes)
                    yield Sleep(begun_s)
                    home, has_left = self._go_on(load.now_home, load.now_over_hosts), True
                if order.is_late and has_left and not has_updated and home.has_happened:
                    yield Sleep(self._begins_s(load.next_copies))
                    begun_s += self._begins_s(load.next_copies)
                    copies, has_updated = self._go_on(load.next_copies), True
            yield Sleep(left * compute_s)
            waits_since_s = self._simulation.now_s - begun_s - sums.begins_s
            yield from self._awaited(home)
            if not has_updated:
                yield Sleep(self._begins_s(load.next_copies))
                copies = self._go_on(load.next_copies)
            yield from (now, later, exchanged)
            if not order.waits:
                for dense_sum in range(len(order.sums)):
                    yield from sums.wait(dense_sum)
            earlier = sums
            later = self._sum(load.reduced_later * self._weight_bytes)
            after_next = self._loads[min(number + 2, self._batches)]
            later_home = load.later_home + load.later_over_hosts
            exchanged = self._exchange_behind(copies, later_home, after_next.rest_copies)
            times.end_s = self._simulation.now_s
            times.wait_reductions_s = waited_s + times.end_s - waits_since_s
            self._finish_step(number, load)

    def _pauses(self, number: int) -> list[tuple[float, int | None]]:
        """Where a forward pass waits: shares of compute, each with a sum of the step before, or None for copies."""
        waits = enumerate(self._order.waits) if number else ()
        found: list[tuple[float, int | None]] = [(self._order.before_rows, None), *((at, which) for which, at in waits)]
        return sorted(found, key=lambda pause: pause[0])

    def _awaited(self, event: Event) -> Process:
        """Wait for other trainers; meanwhile the compute thread notices at once what has come, and passes it on."""
        self._is_waiting = True
        yield event
        self._is_waiting = False

    def _finish_step(self, number: int, load: BatchLoad) -> None:
        if load.retire_group:
            self._to_retire.append(load)
        self._tell(self._done[number])

    def _sum(self, summed_bytes: float) -> Event:
        """Start a sum over the trainers; the event happens when it is done."""
        if summed_bytes == 0:
            return _happened()
        done = Event()
        self._simulation.start(self._summing(summed_bytes, done))
        return done

    def _summing(self, summed_bytes: float, done: Event) -> Process:
        yield Sleep(self._cluster.collective_latency_s)
        yield self._summed(summed_bytes)
        self._simulation.happen(done)

    def _summed(self, summed_bytes: float) -> Transfer:
        """Each trainer sends shares of the parts and gets shares of the sum: 2 (T - 1) / T of the bytes each way."""
        trainers = self._cluster.trainers
        return Transfer(2 * (trainers - 1) / trainers * summed_bytes, self._cluster.between_trainers)

    def _begins_s(self, hops: Hops) -> float:
        """The compute thread's time to begin an exchange, which other threads then carry on."""
        if not hops or not hops[0].rows:
            return 0.0
        return self._cluster.begun_at_once * self._messages_s(hops[0]) + self._laid_out_s(hops)

    def _go_on(self, hops: Hops, over_hosts: Hops = ()) -> Event:
        """Carry on an exchange that has begun, behind the trainer's compute; the event is its end."""
        done = Event()

        def going_on() -> Process:
            if hops and hops[0].rows:
                yield from self._sent(hops[0], begun=self._cluster.begun_at_once)
            noticed_s = 0.0 if self._is_waiting else self._cluster.notice_s
            yield from self._exchange(hops, first=1, on_way_s=noticed_s)
            yield from self._exchange(over_hosts)
            self._simulation.happen(done)

        self._simulation.start(going_on())
        return done

    def _exchange(self, hops: Hops, idle_s: float = 0.0, on_way_s: float = 0.0, first: int = 0) -> Process:
        """Send rows to other trainers and wait for as many of theirs; pass rows on in between.

        Args:
            hops: the hops of the exchange.
            idle_s: time until its first hop is noticed.
            on_way_s: time until each later hop is noticed.
            first: number of the hop to begin with.
        """
        for number, hop in enumerate(hops[first:], first):
            if hop.rows:
                yield Sleep(on_way_s if number else idle_s)
                yield Transfer(self._laid_out_s(hops), (MOVER,))
                yield from self._sent(hop, is_passed_on=number > 0)

    def _sent(self, hop: Hop, begun: float = 0.0, *, is_passed_on: bool = False) -> Process:
        """Send the rows of a hop, receiver by receiver; rows that are passed on must be put in order first.

        Args:
            hop: a hop of an exchange.
            begun: part of its messages' time that has passed already.
            is_passed_on: whether its rows are passed on.
        """
        sent_bytes, messages_s = hop.rows * self._weight_bytes, self._messages_s(hop)
        taken_s = messages_s + (sent_bytes / self._cluster.ordered_bytes_per_s if is_passed_on else 0.0)
        messages = HopMessages(hop.messages, sent_bytes, taken_s, MOVER, begun * messages_s)
        yield from messages.travel(self._simulation, self._cluster, Event())

    def _messages_s(self, hop: Hop) -> float:
        """A trainer's time for the messages of a hop."""
        return self._cluster.message_s * hop.messages

    def _laid_out_s(self, hops: Hops) -> float:
        """A trainer's time for each of these hops, beyond its messages and bytes."""
        return self._cluster.hop_s if len(hops) > 1 else 0.0

    def _exchange_behind(self, before: Event, gradients: Hops, copies: Hops) -> Event:
        """Send gradients home and then copies back, behind the next batch; the event is their end.

        Args:
            before: the end of the exchange before this one.
            gradients: hops of the gradients.
            copies: hops of the copies.
        """
        done = Event()
        self._simulation.start(self._exchanging(before, gradients, copies, done))
        return done

    def _exchanging(self, before: Event, gradients: Hops, copies: Hops, done: Event) -> Process:
        """An idle mover notices its first hop after `call_s`; then it looks more often."""
        on_way_s = self._cluster.notice_s
        is_idle = before.has_happened
        yield before
        yield from self._exchange(gradients, self._cluster.call_s if is_idle else on_way_s, on_way_s)
        yield from self._exchange(copies, on_way_s, on_way_s)
        self._simulation.happen(done)

    def _write_back(self) -> Process:
        """Write groups back: at most two under way, besides one that has come to the movers' barrier."""
        first = second = _WriteBack.over()
        while True:
            if not self._to_retire or not first.is_at_barrier.has_happened:
                yield self._news
                continue
            first, second, before = second, _WriteBack(), second
            self._simulation.start(self._writing_back(self._to_retire.popleft(), before, second))

    def _writing_back(self, load: BatchLoad, before: _WriteBack, own: _WriteBack) -> Process:
        """Put a group's rows after those of the group before, then come to the movers' barrier, again after it."""
        if load.written:
            yield Sleep(self._cluster.row_latency_s)
        yield before.is_put
        if load.written:
            yield self._row_transfer(load.written, (TRAINER_OUT, SERVERS_IN))
        self._simulation.happen(own.is_put)
        yield before.is_retired
        self._tell(own.is_at_barrier)
        yield Sleep(self._cluster.collective_latency_s)
        self._retired = load.retire_group
        self._tell(own.is_retired)

    def _fetch(self) -> Process:
        """Fetch batches: at most two fetches under way; the rows of the second come after those of the first."""
        first = second = _happened()
        while True:
            chosen = self._admissible() if first.has_happened else []
            if not chosen:
                yield self._news
                continue
            self._asked += len(chosen)
            first, second, before = second, Event(), second
            self._simulation.start(self._fetching(chosen, before, second))

    def _fetching(self, chosen: list[int], before: Event, done: Event) -> Process:
        fetched = sum(self._loads[number].fetched for number in chosen)
        if fetched:
            yield Sleep(self._cluster.row_latency_s)
        yield before
        if fetched:
            yield self._row_transfer(fetched, (SERVERS_OUT, TRAINER_IN))
        self._fetched += len(chosen)
        for number in chosen:
            self._simulation.happen(self._ready[number])
        self._tell(done)

    def _row_transfer(self, rows: int, links: tuple[str, ...]) -> Transfer:
        return Transfer(rows * self._record.bytes, (MEMORY,) if self._cluster.is_one_host else links)

    def _admissible(self) -> list[int]:
        """Batches to fetch by one call: as many as wait to be computed, at least one; at most C are under way."""
        most = min(max(1, self._fetched - self._taken), self._window.group - (self._asked - self._fetched))
        chosen: list[int] = []
        for number in range(self._asked, min(self._asked + most, self._batches)):
            if not self._planned[number].has_happened or self._loads[number].prefetch_after > self._retired:
                break
            chosen.append(number)
        return chosen

    def _tell(self, event: Event) -> None:
        self._simulation.happen(event)
        self._tell_mover()

    def _tell_mover(self) -> None:
        news, self._news = self._news, Event()
        self._simulation.happen(news)


def _happened() -> Event:
    event = Event()
    event.has_happened = True
    return event
