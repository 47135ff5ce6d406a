"""The cluster of a prediction: which ranks share hosts, and the speeds of trainers and links."""

from dataclasses import dataclass
from math import ceil, inf, log2

from bagpipe_hpc.plan.sum_levels import Levels, sum_levels
from bagpipe_hpc.step.dense.sums_choice import AUTO, GRID_FROM_TRAINERS

SERVERS_OUT, SERVERS_IN = "from the servers", "to the servers"
TRAINER_OUT, TRAINER_IN = "from a trainer", "to a trainer"
ORACLE_OUT = "from the oracle"
MEMORY = "memory"
MOVER = "a mover's core"
SUMS_THREAD = "a core for sums"
"""Cores, as links: they carry seconds of work instead of bytes, one a second."""


@dataclass(frozen=True)
class Cluster:
    """Ranks, hosts and speeds. Hosts and trainers are all alike.

    Attributes:
        trainers: number of trainers.
        trainers_per_host: trainers that share the link of a host.
        server_hosts: hosts with embedding servers, none of them with trainers; 0 means that all ranks are on one host.
        bytes_per_s: bandwidth of a host's link, each way.
        latency_s: from host to host, one way, as MPI sees it.
        compute_s_per_sample: a trainer's time for a sample of its slice, with row updates, without waits.
        compute_s_per_step: its time for a step that does not depend on the samples: what Python, autograd and calls
            take, however small the slice is.
        plan_s_per_sample: the oracle's time to read and plan a sample of a batch.
        call_s: time that a transfer takes beyond latency and bytes: until an idle mover or server notices its work.
        memory_bytes_per_s: rate of transfers within a host.
        message_s: a trainer's time to send rows to another trainer and to receive that one's, where one call does so
            for all other trainers.
        hop_s: a trainer's further time for a hop over a grid: to lay it out, and the call (13 to 23 us measured:
            benchmarks/notes/2026-11-23-row-exchange.md).
        notice_s: time until a mover that has something under way notices that it may go on (35 to 60 us measured:
            benchmarks/notes/2026-11-24-request-watch.md).
        ordered_bytes_per_s: rate at which a trainer reorders rows that it passes on (measured with 1 to 2.6 MB: 10 to
            16 GB/s, the same note).
        added_bytes_per_s: rate at which it adds up parts of dense gradients.
        dense_sums: the value of `train.dense_sums`.
        has_sums_thread: whether sums by messages have a thread and a core of their own (`train.sums_thread`).
        sums_notice_s: time until that thread notices that it may go on (6 to 10 us measured, beyond what a spinning
            thread takes: benchmarks/notes/2026-11-25-sums-thread.md).
        row_sum_bytes: bytes of a number of a row's gradient between trainers (`train.row_sums`).
        begun_at_once: part of the time of many messages that passes before the call that begins them returns; the
            mover spends the rest.
    """

    trainers: int
    compute_s_per_sample: float
    trainers_per_host: int = 1
    server_hosts: int = 1
    bytes_per_s: float = inf
    latency_s: float = 0.0
    compute_s_per_step: float = 0.0
    plan_s_per_sample: float = 0.5e-6
    call_s: float = 300e-6
    memory_bytes_per_s: float = 4e9
    message_s: float = 5e-6
    hop_s: float = 20e-6
    notice_s: float = 50e-6
    ordered_bytes_per_s: float = 12e9
    added_bytes_per_s: float = 20e9
    dense_sums: str = "horovod"
    has_sums_thread: bool = False
    sums_notice_s: float = 10e-6
    row_sum_bytes: int = 4
    begun_at_once: float = 0.25

    def compute_s(self, samples: int) -> float:
        """A trainer's time for a step with this many samples in its slice."""
        return self.compute_s_per_step + self.compute_s_per_sample * samples

    @property
    def is_one_host(self) -> bool:
        """Whether all ranks are on one host, so that rows stay there."""
        return self.server_hosts == 0

    @property
    def reduces_over_links(self) -> bool:
        """Whether sums of gradients leave a host."""
        return not self.is_one_host and self.trainers > self.trainers_per_host

    def capacities(self) -> dict[str, float]:
        """One trainer's share of each link, in bytes a second: all trainers do the same at the same time."""
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
            MOVER: 1.0,
            SUMS_THREAD: 1.0,
        }

    @property
    def between_trainers(self) -> tuple[str, ...]:
        """The links that carry bytes from a trainer to others and back."""
        return (TRAINER_IN, TRAINER_OUT) if self.reduces_over_links else (MEMORY,)

    @property
    def row_latency_s(self) -> float:
        """Time of a fetch or write-back beyond its bytes: latency there and back, and the call."""
        return self.call_s + (0.0 if self.is_one_host else 2 * self.latency_s)

    @property
    def collective_latency_s(self) -> float:
        """Time of a collective operation of the trainers beyond its bytes, including the time until it is noticed."""
        return self.rounds_s + (self.call_s if self.trainers > 1 else 0.0)

    @property
    def rounds_s(self) -> float:
        """Time of a collective operation of the trainers beyond its bytes: a message in each of log2 T rounds."""
        return ceil(log2(self.trainers)) * self.link_latency_s

    @property
    def chosen_dense_sums(self) -> str:
        """What sums dense gradients; for `auto` there is a core for Horovod's thread."""
        is_many = self.trainers >= GRID_FROM_TRAINERS
        return ("grid" if is_many else "horovod") if self.dense_sums == AUTO else self.dense_sums

    @property
    def dense_levels(self) -> Levels:
        """The levels of sums of dense gradients by messages; empty where Horovod sums them, or there is one trainer."""
        chosen = self.chosen_dense_sums
        if self.trainers == 1 or chosen == "horovod":
            return ()
        return (self.trainers,) if chosen == "mpi" else sum_levels(self.trainers)

    @property
    def allreduce_s(self) -> float:
        """Time of `MPI_Allreduce` of many numbers beyond their bytes.

        A message in each of log2 T rounds that scatter the sum, and of as many that gather it (Thakur, Rabenseifner and
        Gropp, Optimization of Collective Communication Operations in MPICH, 2005, section 4.5).
        """
        return 2 * self.rounds_s

    @property
    def link_latency_s(self) -> float:
        """Time of a message between two trainers beyond its bytes, where both are already waiting for it."""
        return self.latency_s if self.reduces_over_links else 0.0
