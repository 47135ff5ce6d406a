"""A step's sums of dense gradients in simulated time, by Horovod or with messages (`models/sums/contract.py`)."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from bagpipe_hpc.plan.sum_levels import Levels, share_pieces
from bagpipe_hpc.simulation.cluster import MOVER, SUMS_THREAD, Cluster
from bagpipe_hpc.simulation.events import Event, Process, Simulation, Sleep, Transfer
from bagpipe_hpc.simulation.hop_messages import HopMessages
from bagpipe_hpc.simulation.step_order import DenseSum

_BYTES = 4
"""Bytes of a number, float32."""


class _Hop(NamedTuple):
    """What a trainer sends and receives at once, and adds up once it has arrived.

    Attributes:
        messages: how many, each way.
        sent: share of the gradients' bytes that is sent, each way.
        added: share of these bytes that the trainer then adds up.
    """

    messages: int
    sent: float
    added: float = 0.0


def hops_on(levels: Levels) -> tuple[_Hop, ...]:
    """The hops of one sum by messages (`mpi/reduction.py`).

    Args:
        levels: the levels of the sum, over at least two trainers. Two send each other all that they have; more send
            shares, there and back.
    """
    if levels == (2,):
        return (_Hop(1, 1.0, 1.0),)
    adding, left = [], 1.0
    for members in levels:
        adding.append(_Hop(members - 1, (members - 1) / members * left, left))
        left /= members
    return (*adding, *(hop._replace(added=0.0) for hop in reversed(adding)))


class DenseSumming:
    """The sums of one step.

    Args:
        simulation: the simulation in which they pass.
        cluster: who sums, and how.
        sums: the sums in their order.

    Attributes:
        begins_s: the compute thread's time so far to begin them.
    """

    def __init__(self, simulation: Simulation, cluster: Cluster, sums: Sequence[DenseSum]) -> None:
        self.begins_s = 0.0
        self._simulation = simulation
        self._cluster = cluster
        self._sums = sums
        self._complete = [Event() for _ in sums]
        self._done = [Event() for _ in sums]
        self._awaited: int | None = None
        self._core = SUMS_THREAD if cluster.has_sums_thread else MOVER
        self._notice_s = cluster.sums_notice_s if cluster.has_sums_thread else cluster.notice_s
        levels = cluster.dense_levels
        self._hops = hops_on(levels) if levels else ()
        for process in (self._messages(number) for number in range(len(sums))) if levels else (self._horovod(),):
            simulation.start(process)

    def start(self, number: int) -> Process:
        """The compute thread has the gradients of a sum, and begins it."""
        if self._hops:
            begins_s = self._cluster.begun_at_once * self._messages_s(self._sums[number], 0)
            self.begins_s += begins_s
            yield Sleep(begins_s)
        self._simulation.happen(self._complete[number])

    def wait(self, number: int) -> Process:
        """Let the compute thread wait for the end of a sum; while it waits, it notices at once what has come."""
        self._awaited = number
        yield self._done[number]
        self._awaited = None

    def _horovod(self) -> Process:
        """Sum one after the other; after each sum, Horovod's thread sees at once whether the next one is waiting."""
        for dense, complete, done in zip(self._sums, self._complete, self._done, strict=True):
            call_s = 0.0 if complete.has_happened else self._cluster.call_s
            yield complete
            if (trainers := self._cluster.trainers) > 1:
                yield Sleep(call_s + self._cluster.allreduce_s)
                yield Transfer(2 * (trainers - 1) / trainers * self._bytes(dense), self._cluster.between_trainers)
                yield Sleep(self._added_s(dense, 1.0))
            self._simulation.happen(done)

    def _messages(self, number: int) -> Process:
        """Sum hop by hop; each hop begins when a thread has noticed what came. Other sums pass beside this one."""
        dense = self._sums[number]
        yield self._complete[number]
        for place, hop in enumerate(self._hops):
            if place and self._awaited != number:
                yield Sleep(self._notice_s)
            pieces, added_s = self._pieces(dense, place), self._added_s(dense, hop.added)
            half, is_half_added = Event(), Event()
            self._simulation.start(self._add_first(half, (pieces - 1) / pieces * added_s, is_half_added))
            taken_s = self._messages_s(dense, place)
            begun_s = 0.0 if place else self._cluster.begun_at_once * taken_s
            messages = HopMessages(pieces * hop.messages, hop.sent * self._bytes(dense), taken_s, self._core, begun_s)
            yield from messages.travel(self._simulation, self._cluster, half)
            yield is_half_added
            yield Transfer(added_s / pieces, (self._core,))
        self._simulation.happen(self._done[number])

    def _add_first(self, half: Event, seconds: float, is_added: Event) -> Process:
        """Add up the first of two pieces while the second travels."""
        yield half
        yield Transfer(seconds, (self._core,))
        self._simulation.happen(is_added)

    def _pieces(self, dense: DenseSum, place: int) -> int:
        """How many pieces each other trainer's share travels in: one within a host."""
        levels = self._cluster.dense_levels
        is_back = place >= len(levels)
        is_within_host = self._cluster.trainers_per_host % prod(levels[: place + 1]) == 0  # each group of this level
        if is_back or is_within_host or not self._cluster.reduces_over_links:
            return 1
        return share_pieces(len(levels) - place, int(self._hops[place].added * self._bytes(dense)))

    def _messages_s(self, dense: DenseSum, place: int) -> float:
        return self._cluster.message_s * self._hops[place].messages * self._pieces(dense, place)

    def _added_s(self, dense: DenseSum, share: float) -> float:
        return share * self._bytes(dense) / self._cluster.added_bytes_per_s

    @staticmethod
    def _bytes(dense: DenseSum) -> float:
        return _BYTES * dense.weights
