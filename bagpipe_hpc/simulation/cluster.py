"""The cluster of a prediction: who is where, how fast trainers compute and links carry."""

from dataclasses import dataclass
from math import ceil, inf, log2

SERVERS_OUT, SERVERS_IN = "from the servers", "to the servers"
TRAINER_OUT, TRAINER_IN = "from a trainer", "to a trainer"
ORACLE_OUT = "from the oracle"
MEMORY = "memory"


@dataclass(frozen=True)
class Cluster:
    """Ranks, hosts and speeds. Hosts and trainers are all alike.

    Attributes:
        trainers: number T.
        trainers_per_host: trainers that share the link of a host.
        server_hosts: hosts with embedding servers, none of them with trainers; 0 means that all ranks are on one host.
        bytes_per_s: bandwidth of a host's link, each way.
        latency_s: from host to host, one way, as MPI sees it.
        compute_s_per_sample: a trainer's time for a sample of its slice, row updates included and waits not.
        plan_s_per_sample: the oracle's time for a sample of a batch, reading included.
        call_s: time that a transfer takes beyond latency and bytes: until an idle mover or server notices its work.
        memory_bytes_per_s: rate of transfers within a host.
        message_s: a trainer's time to send rows to another trainer and to take in what comes from it, if it does so
            with all of them by one call.
        hop_s: a trainer's time for a hop over a grid beside that: to lay it out, and to put rows in order.
    """

    trainers: int
    compute_s_per_sample: float
    trainers_per_host: int = 1
    server_hosts: int = 1
    bytes_per_s: float = inf
    latency_s: float = 0.0
    plan_s_per_sample: float = 0.5e-6
    call_s: float = 300e-6
    memory_bytes_per_s: float = 4e9
    message_s: float = 5e-6
    hop_s: float = 60e-6

    @property
    def is_one_host(self) -> bool:
        """Whether rows stay within a host."""
        return self.server_hosts == 0

    @property
    def reduces_over_links(self) -> bool:
        """Whether sums of gradients leave a host."""
        return not self.is_one_host and self.trainers > self.trainers_per_host

    def capacities(self) -> dict[str, float]:
        """Bytes a second of each link, as one trainer's share of it: all trainers do the same at the same time."""
        link = inf if self.is_one_host else self.bytes_per_s
        per_trainer = link / min(self.trainers, self.trainers_per_host)
        per_server = link * self.server_hosts / self.trainers if self.server_hosts else inf
        return {
            SERVERS_OUT: per_server,
            SERVERS_IN: per_server,
            TRAINER_OUT: per_trainer,
            TRAINER_IN: per_trainer,
            ORACLE_OUT: link,
            MEMORY: self.memory_bytes_per_s,
        }

    @property
    def row_latency_s(self) -> float:
        """Time of a fetch or write-back beyond its bytes: there and back."""
        return self.call_s + (0.0 if self.is_one_host else 2 * self.latency_s)

    @property
    def collective_latency_s(self) -> float:
        """Time of a collective operation of the trainers beyond its bytes, until it is noticed included."""
        return self.rounds_s + (self.call_s if self.trainers > 1 else 0.0)

    @property
    def rounds_s(self) -> float:
        """Time of a collective operation of the trainers beyond its bytes: a message in each of log2 T rounds."""
        return ceil(log2(self.trainers)) * self.link_latency_s

    @property
    def link_latency_s(self) -> float:
        """Time of a message between two trainers beyond its bytes, where both are waiting for it."""
        return self.latency_s if self.reduces_over_links else 0.0
