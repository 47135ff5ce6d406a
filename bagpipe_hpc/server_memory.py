"""Whether the hosts of a run can hold its tables, and how many servers and hosts would. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

_MOST_SERVERS_A_HOST = 16
"""More do not fill hosts of different sizes much better."""


@dataclass(frozen=True)
class HostNeed:
    """What the ranks of a host are about to allocate, and what it has.

    Attributes:
        name: of the host.
        servers: embedding servers there.
        ranks: ranks that allocate anything there.
        tables_bytes: rows of its servers, in memory that its ranks share.
        private_bytes: row caches, planner.
        free_bytes: memory that is free.
        shared_bytes: how much of it ranks may share.
    """

    name: str
    servers: int
    ranks: int
    tables_bytes: int
    private_bytes: int
    free_bytes: int
    shared_bytes: int

    @property
    def room_bytes(self) -> int:
        """What is left there for tables."""
        return max(0, min(self.free_bytes - self.private_bytes, self.shared_bytes))


def memory_problem(hosts: Sequence[HostNeed]) -> str | None:
    """What does not fit and what would; None if everything fits."""
    for host in hosts:
        needed = host.tables_bytes + host.private_bytes
        if needed > host.free_bytes:
            what = (
                f"tables, row caches and planner need {_gb(needed)} on {host.name} ({host.ranks} ranks), which has "
                f"{_gb(host.free_bytes)} free"
            )
        elif host.tables_bytes > host.shared_bytes:
            what = (
                f"tables need {_gb(host.tables_bytes)} of shared memory on {host.name}, where /dev/shm has "
                f"{_gb(host.shared_bytes)} free (mount -o remount,size=... enlarges it; of a container --shm-size)"
            )
        else:
            continue
        if not host.servers or host.private_bytes > host.free_bytes:
            return (
                f"{what}: row caches and planner alone take {_gb(host.private_bytes)}; set a shorter "
                "lookahead.batches, a smaller cache.rows or model.embedding_dim, or start fewer ranks there"
            )
        return f"{what}: {_cure(hosts)}"
    return None


def _cure(hosts: Sequence[HostNeed]) -> str:
    servers = sum(host.servers for host in hosts)
    tables_bytes = sum(host.tables_bytes for host in hosts)
    rooms = [host.room_bytes for host in hosts]
    each = f"the tables take {_gb(tables_bytes)}, {_gb(tables_bytes / servers)} on each of {servers} servers"
    smaller = "a smaller model.embedding_dim or fewer rows (bagpipe prepare --min-count or --max-rows-per-table)"
    if enough := servers_that_fit(tables_bytes, rooms):
        return (
            f"{each}. These hosts have room: {enough} servers would do (roles.servers={enough}), each where there is "
            f"memory for {_gb(tables_bytes / enough)}; or use {smaller}"
        )
    like = max(hosts, key=lambda host: min(host.free_bytes, host.shared_bytes))
    more, enough = hosts_to_add(tables_bytes, rooms, min(like.free_bytes, like.shared_bytes))
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
        Their number and that of the servers of all, or zeros where no number would do.
    """
    if further_bytes <= 0:
        return 0, 0
    hosts = max(1, -(-(tables_bytes - sum(rooms)) // further_bytes))
    while True:
        if servers := servers_that_fit(tables_bytes, [*rooms, *[further_bytes] * hosts]):
            return hosts, servers
        hosts += 1


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
