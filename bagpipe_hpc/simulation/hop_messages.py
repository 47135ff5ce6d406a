"""The messages of one hop in simulated time: those that have left travel while the next ones begin.

Measured between emulated hosts, a hop takes about as long as its messages or its bytes do, whichever is longer
(benchmarks/notes/2026-11-26-messages-of-a-hop.md). Within a host one core both begins and copies the messages.
"""

from dataclasses import dataclass

from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.events import Event, Process, Simulation, Sleep, Transfer


@dataclass(frozen=True)
class HopMessages:
    """The messages that a trainer sends to others; as many come in.

    Attributes:
        count: messages each way, one at least.
        sent_bytes: bytes of all of them, each way.
        taken_s: time that sending them takes its core.
        core: the link that stands for this core.
        begun_s: part of `taken_s` that has passed already.
    """

    count: int
    sent_bytes: float
    taken_s: float
    core: str
    begun_s: float = 0.0

    def travel(self, simulation: Simulation, cluster: Cluster, half: Event) -> Process:
        """Send all of them; ends when as many have come.

        Args:
            simulation: the simulation in which they travel.
            cluster: the hosts between which they travel.
            half: happens when half of the bytes have come.
        """
        if not cluster.reduces_over_links:
            yield Transfer(self.taken_s - self.begun_s, (self.core,))
            yield Transfer(self.sent_bytes, cluster.between_trainers)
            simulation.happen(half)
            return
        first_s = max(0.0, self.taken_s / self.count - self.begun_s)
        yield Transfer(first_s, (self.core,))
        have_come, last_bytes = Event(), self.sent_bytes / self.count
        half_bytes = min(self.sent_bytes / 2, self.sent_bytes - last_bytes)

        def others() -> Process:
            yield Sleep(cluster.link_latency_s)
            yield Transfer(half_bytes, cluster.between_trainers)
            simulation.happen(half)
            yield Transfer(self.sent_bytes - half_bytes - last_bytes, cluster.between_trainers)
            simulation.happen(have_come)

        simulation.start(others())
        yield Transfer(self.taken_s - self.begun_s - first_s, (self.core,))
        yield Sleep(cluster.link_latency_s)
        yield have_come
        yield Transfer(last_bytes, cluster.between_trainers)
