"""The memory that each rank of a run takes, from its plans, by the formulas of docs/memory.md."""

from dataclasses import dataclass

from bagpipe_hpc.cluster.server_memory import HostNeed, Need
from bagpipe_hpc.preparation.compute_check import trainer_memory
from bagpipe_hpc.tools.forecast.sweep import Outlook


@dataclass(frozen=True)
class RankMemory:
    """Bytes of each rank, besides what Python, MPI and (on trainers) torch take without any rows.

    Attributes:
        servers: number of servers S.
        oracle: its planner, and samples that it has read ahead.
        server: memory of the server with the most rows.
        trainer: its caches, dense half, an evaluation and samples that it has read.
        plans_bytes: plans under way at the oracle; a bound for those at a trainer, which has only its own part.
        rows_bytes: most bytes of rows on their way at a trainer: what a group of batches fetches and two groups write
            back.
    """

    servers: int
    oracle: Need
    server: Need
    trainer: Need
    plans_bytes: int
    rows_bytes: int

    @classmethod
    def of(cls, outlook: Outlook, servers: int) -> "RankMemory":
        """The memory of the ranks of a run with `servers` servers."""
        run, need, traffic = outlook.run, outlook.need, outlook.traffic
        window = need.window
        under_way = min(window.plans_ahead, max(1, traffic.batches))
        moved = traffic.bytes["fetched"] + 2 * traffic.bytes["written"] + traffic.bytes["added"]
        server_bytes = max(run.server_bytes(servers))
        if run.is_in_memory(servers):
            server = Need(tables_bytes=server_bytes, fullest_server_bytes=server_bytes)
        else:
            server = Need(frames_bytes=int(run.config.tables.memory_gb * 1e9))
        return cls(
            servers=servers,
            oracle=Need(planner_bytes=need.planner_bytes, reading_bytes=run.sample_orders.oracle_bytes()),
            server=server,
            trainer=trainer_memory(run, outlook.trainers, need.groups),
            plans_bytes=int(under_way * traffic.plan_bytes),
            rows_bytes=int(window.group * moved),
        )

    def pieces(self) -> dict[str, dict[str, int]]:
        """What the ranks hold, by rank and kind."""
        both = {"plans": self.plans_bytes}
        return {
            "oracle": _pieces(self.oracle) | both,
            "each server": _pieces(self.server),
            "each trainer": _pieces(self.trainer) | both | {"rows": self.rows_bytes},
        }


def _pieces(need: Need) -> dict[str, int]:
    return {
        "tables": need.tables_bytes + need.frames_bytes,
        "caches": need.caches_bytes,
        "dense": need.dense_bytes,
        "planner": need.planner_bytes,
        "evaluation": need.evaluation_bytes,
        "samples": need.reading_bytes,
    }


def hosts_of(
    memory: RankMemory,
    server_nodes: int,
    trainers: int,
    trainers_per_node: int,
    node_bytes: int,
    smaller_planner: str = "",
) -> list[HostNeed]:
    """What the ranks of a run take on nodes that are alike: one server each on some, trainers on the others.

    Args:
        memory: memory of each rank.
        server_nodes: nodes with servers; 0 for one node with all ranks.
        trainers: number of trainers T.
        trainers_per_node: most trainers on one node.
        node_bytes: free memory of each node; half of it may be shared between ranks, the usual size of `/dev/shm`.
        smaller_planner: as in `Need`.
    """
    oracle = memory.oracle + Need(reading_bytes=memory.plans_bytes, smaller_planner=smaller_planner)
    trainer = memory.trainer + Need(reading_bytes=memory.rows_bytes + memory.plans_bytes)
    nodes = [[trainer] * min(trainers_per_node, trainers - first) for first in range(0, trainers, trainers_per_node)]
    nodes[0].append(oracle)
    if server_nodes:
        nodes += [[memory.server]] * server_nodes
    else:
        nodes[0].append(memory.server)
    return [
        HostNeed(
            name=f"node {number}",
            servers=sum(bool(need.tables_bytes or need.frames_bytes) for need in needs),
            ranks=len(needs),
            need=sum(needs, Need()),
            free_bytes=node_bytes,
            shared_bytes=node_bytes // 2,
        )
        for number, needs in enumerate(nodes)
    ]
