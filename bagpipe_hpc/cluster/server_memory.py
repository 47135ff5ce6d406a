"""Whether the hosts of a run can hold its tables, and how many servers and hosts would. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bagpipe_hpc.terminal import counted

_MOST_SERVERS_A_HOST = 16
"""More do not fill hosts of different sizes much better."""

_MOST_HOSTS_TO_ADD = 1000
"""A run that needs more has a mistake in its settings, and trying millions of numbers would take minutes."""

_UNEVEN = 1.05
"""A server with so many times its even share is called too full."""


@dataclass(frozen=True)
class Need:
    """What a rank, or all ranks of a host, are about to allocate of main memory.

    Attributes:
        tables_bytes: rows of servers.
        caches_bytes: row caches of trainers.
        dense_bytes: dense models of trainers, with what a step computes.
        planner_bytes: the oracle's planner.
        evaluation_bytes: predictions of the test rows at trainers.
        fullest_server_bytes: of `tables_bytes`, those of the server with the most.
        frames_bytes: rows that servers whose tables lie on disk keep in memory of their own.
        reading_bytes: samples that the oracle and trainers have read and not yet used.
        tables_alone: whether a server's rows are in memory of its own; else in memory that ranks of its host share.
        smaller_planner: the setting with which the policy's planner takes less (`Policy.smaller_state`), if it has one.
    """

    tables_bytes: int = 0
    caches_bytes: int = 0
    dense_bytes: int = 0
    planner_bytes: int = 0
    evaluation_bytes: int = 0
    fullest_server_bytes: int = 0
    frames_bytes: int = 0
    reading_bytes: int = 0
    tables_alone: bool = False
    smaller_planner: str = ""

    def __add__(self, other: "Need") -> "Need":
        """What both allocate."""
        return Need(
            self.tables_bytes + other.tables_bytes,
            self.caches_bytes + other.caches_bytes,
            self.dense_bytes + other.dense_bytes,
            self.planner_bytes + other.planner_bytes,
            self.evaluation_bytes + other.evaluation_bytes,
            max(self.fullest_server_bytes, other.fullest_server_bytes),
            self.frames_bytes + other.frames_bytes,
            self.reading_bytes + other.reading_bytes,
            self.tables_alone or other.tables_alone,  # of a host's servers all share their rows with trainers, or none
            self.smaller_planner or other.smaller_planner,  # one rank of a run plans
        )

    @property
    def private_bytes(self) -> int:
        """Bytes of everything but the tables."""
        trainers = self.caches_bytes + self.dense_bytes + self.evaluation_bytes
        return trainers + self.planner_bytes + self.reading_bytes + self.frames_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of everything."""
        return self.tables_bytes + self.private_bytes

    def private_problem(self) -> str:
        """What the private part is made of, and what makes its largest piece smaller."""
        rows_cure = "a shorter lookahead.batches, a smaller cache.rows or model.embedding_dim"
        dense_cure = "a smaller model ([model]), or a smaller train.batch_size"
        planner_cure = "a shorter lookahead.batches" + (f", or {self.smaller_planner}" if self.smaller_planner else "")
        pieces = {
            "row caches": (self.caches_bytes, rows_cure),
            "dense models": (self.dense_bytes, dense_cure),
            "planner": (self.planner_bytes, planner_cure),
            "evaluation": (self.evaluation_bytes, "a smaller train.exact_auc_samples"),
            "samples read": (self.reading_bytes, "fewer data.lanes, or smaller data.block_rows"),
            "rows of servers": (self.frames_bytes, "a smaller tables.memory_gb"),
        }
        made_of = ", ".join(f"{name} {_gb(size)}" for name, (size, _) in pieces.items() if size)
        _, cure = max(pieces.values())
        tables = "" if self.frames_bytes else " without any table"
        return f"{made_of}{tables}; set {cure}"


@dataclass(frozen=True)
class HostNeed:
    """What the ranks of a host are about to allocate, and what it has.

    Attributes:
        name: of the host.
        servers: embedding servers there.
        ranks: ranks that allocate anything there.
        need: what all of them allocate.
        free_bytes: memory that is free.
        shared_bytes: how much of it ranks may share.
    """

    name: str
    servers: int
    ranks: int
    need: Need
    free_bytes: int
    shared_bytes: int

    @property
    def room_bytes(self) -> int:
        """What is left there for tables."""
        return max(0, min(self.free_bytes - self.need.private_bytes, self.most_tables_bytes))

    @property
    def most_tables_bytes(self) -> int:
        """Memory where tables may lie, if nothing else does."""
        return self.free_bytes if self.need.tables_alone else min(self.free_bytes, self.shared_bytes)


def memory_problem(hosts: Sequence[HostNeed]) -> str | None:
    """What does not fit and what would; None if everything fits."""
    for host in hosts:
        need = host.need
        if need.total_bytes > host.free_bytes:
            what = (
                f"tables, row caches, dense models, planner and evaluation need {_gb(need.total_bytes)} on {host.name} "
                f"({counted(host.ranks, 'rank')}), which has {_gb(host.free_bytes)} free"
            )
        elif need.tables_bytes > host.most_tables_bytes:
            what = (
                f"tables need {_gb(need.tables_bytes)} of shared memory on {host.name}, where /dev/shm has "
                f"{_gb(host.shared_bytes)} free (mount -o remount,size=... enlarges it; of a container --shm-size)"
            )
        else:
            continue
        if not host.servers or need.private_bytes > host.free_bytes:
            return f"{what}: {need.private_problem()}, or start fewer ranks there"
        return f"{what}: {_cure(hosts)}"
    return None


def _cure(hosts: Sequence[HostNeed]) -> str:
    servers = sum(host.servers for host in hosts)
    tables_bytes = sum(host.need.tables_bytes for host in hosts)
    rooms = [host.room_bytes for host in hosts]
    fullest_bytes = max(host.need.fullest_server_bytes for host in hosts)
    if fullest_bytes > _UNEVEN * tables_bytes / servers:
        return (
            f"the tables take {_gb(tables_bytes)}, and {_gb(fullest_bytes)} of them lie on one of {servers} servers: "
            "set tables.placement=round_robin, which spreads rows evenly, or use hosts with more memory"
        )
    each = f"the tables take {_gb(tables_bytes)}, {_gb(tables_bytes / servers)} on each of {servers} servers"
    smaller = "a smaller model.embedding_dim or fewer rows (bagpipe prepare --min-count or --max-rows-per-table)"
    if enough := servers_that_fit(tables_bytes, rooms):
        return (
            f"{each}. These hosts have room: {enough} servers would do (roles.servers={enough}), each where there is "
            f"memory for {_gb(tables_bytes / enough)}; or use {smaller}"
        )
    like = max(hosts, key=lambda host: host.most_tables_bytes)
    more, enough = hosts_to_add(tables_bytes, rooms, like.most_tables_bytes)
    if not more:
        return f"{each}. Use hosts with more memory, {smaller}"
    return (
        f"{each}. These hosts have room for {_gb(sum(rooms))}: {more} more like {like.name} would do, with "
        f"{enough} servers (roles.servers={enough}); or use {smaller}"
    )


def servers_that_fit(tables_bytes: int, rooms: Sequence[int]) -> int:
    """The fewest servers that hold the tables, each an equal part.

    Args:
        tables_bytes: of all tables.
        rooms: bytes that each host has for them.

    Returns:
        Their number, or 0 where the hosts are too small.
    """
    if sum(rooms) < tables_bytes or not tables_bytes:
        return 0
    fewest = -(-tables_bytes // max(rooms))  # a server is on one host
    for servers in range(fewest, _MOST_SERVERS_A_HOST * len(rooms) + 1):
        part = -(-tables_bytes // servers)
        if sum(room // part for room in rooms) >= servers:
            return servers
    return 0


def hosts_to_add(tables_bytes: int, rooms: Sequence[int], further_bytes: int) -> tuple[int, int]:
    """How many hosts with so much room would do besides those at hand.

    Returns:
        Their number and that of the servers of all, or zeros where no number up to `_MOST_HOSTS_TO_ADD` would do.
    """
    if further_bytes <= 0:
        return 0, 0
    hosts = max(1, -(-(tables_bytes - sum(rooms)) // further_bytes))
    while hosts <= _MOST_HOSTS_TO_ADD:
        if servers := servers_that_fit(tables_bytes, [*rooms, *[further_bytes] * hosts]):
            return hosts, servers
        hosts += 1
    return 0, 0


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
