"""Which rank takes which role, by what its host has: trainers where GPUs are, servers where memory is. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout

_ALIKE = 0.9
"""A host with at least this share of another's memory counts as its equal: free memory differs from start to start."""


@dataclass(frozen=True)
class RankPlace:
    """Where a rank is.

    Attributes:
        host: number of its host.
        gpus: GPUs there that the job may use.
        memory_bytes: memory there.
        gpu_group: ranks of the same number see the same GPUs.
    """

    host: int
    gpus: int = 0
    memory_bytes: int = 1
    gpu_group: int = 0


@dataclass(frozen=True)
class Placement:
    """Which rank is which member of a layout.

    Members have the numbers that `RoleLayout` gives them: the oracle, then the servers, then the trainers.

    Attributes:
        layout: how many of each role.
        order: of each member its rank, as the launcher numbers ranks.
        gpu_groups: of each member its `RankPlace.gpu_group`; empty where all members of a host see the same GPUs.
    """

    layout: RoleLayout
    order: tuple[int, ...]
    gpu_groups: tuple[int, ...] = ()

    @classmethod
    def in_rank_order(cls, layout: RoleLayout) -> "Placement":
        """The first rank is the oracle; servers and trainers follow."""
        return cls(layout, tuple(range(layout.world_size)))

    @classmethod
    def choose(cls, places: Sequence[RankPlace], servers: int, way: str) -> "Placement":
        """Give each rank a role.

        Args:
            places: of each rank.
            servers: number of servers; 0 leaves it to the places or to `RoleLayout`.
            way: `roles.placement`.

        Raises:
            ConfigError: the ranks do not suffice for the roles.
        """
        if way == "rank_order":
            layout = RoleLayout.for_world(len(places), servers)
            order = list(range(len(places)))
        else:
            layout = RoleLayout.for_world(len(places), servers, usable_gpus(places))
            order = place_roles(places, layout)
        return cls(layout, tuple(order), tuple(places[rank].gpu_group for rank in order))

    def describe(self, hosts: Sequence[str]) -> list[str]:
        """A line a host: which members it has, such as `node1: oracle, servers 0-1, trainer 0`.

        Args:
            hosts: name of each rank's host.
        """
        members: dict[str, list[int]] = {}
        for rank, host in enumerate(hosts):
            members.setdefault(host, []).append(self.order.index(rank))
        return [f"{host}: {', '.join(self._named(sorted(here)))}" for host, here in members.items()]

    def _named(self, members: Sequence[int]) -> Iterator[str]:
        for role, group in groupby(members, self.layout.role):
            numbers = [self.layout.role_rank(member) for member in group]
            if role is Role.ORACLE:
                yield role.value
            else:
                yield f"{role.value}{'s' if len(numbers) > 1 else ''} {_ranges(numbers)}"


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, written short: `0-2, 5`."""
    runs = [[pair[1] for pair in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def usable_gpus(places: Sequence[RankPlace]) -> int:
    """How many ranks can have a GPU to themselves."""
    ranks = Counter(place.host for place in places)
    gpus = {place.host: place.gpus for place in places}
    return sum(min(gpus[host], ranks[host]) for host in ranks)


def place_roles(places: Sequence[RankPlace], layout: RoleLayout) -> list[int]:
    """Choose a rank for each member of a layout.

    * Where there are GPUs, trainers go to them, one a GPU, spread over the hosts. Trainers that find none, and all of a
      job without GPUs, take what the others leave.
    * Servers are spread over hosts, each to the one with the most memory for another server; next to GPUs only where
      other hosts have no rank left.
    * The oracle takes a rank of a host without servers, if there is one, rather without GPUs, and where the most ranks
      are left.

    On a host the oracle takes the first rank, servers follow, then trainers: on a single host, all are in rank order.
    Members of a role are numbered in the order of the ranks, so that neighbours share a host.

    Args:
        places: of each rank.
        layout: how many of each role; as many as ranks.

    Returns:
        The rank of each member: the oracle, the servers, the trainers.
    """
    ranks: dict[int, list[int]] = {}
    for rank, place in enumerate(places):
        ranks.setdefault(place.host, []).append(rank)
    gpus = {place.host: place.gpus for place in places}
    memory = _levels({place.host: place.memory_bytes for place in places})
    on_gpus = _deal_to_gpus(ranks, gpus, layout.trainers)
    free = {host: len(here) - on_gpus[host] for host, here in ranks.items()}

    servers: Counter[int] = Counter()

    def for_server(host: int) -> tuple[bool, float]:
        return not gpus[host], memory[host] / (servers[host] + 1)

    def for_oracle(host: int) -> tuple[bool, bool, int]:
        return not servers[host], not gpus[host], free[host]

    for _ in range(layout.servers):
        host = max(filter(free.__getitem__, free), key=for_server)  # the first of equals
        servers[host] += 1
        free[host] -= 1
    oracle = max(filter(free.__getitem__, free), key=for_oracle)
    oracle_ranks, server_ranks, trainer_ranks = [], [], []
    for host, here in ranks.items():
        first_server = 1 if host == oracle else 0
        first_trainer = first_server + servers[host]
        oracle_ranks += here[:first_server]
        server_ranks += here[first_server:first_trainer]
        trainer_ranks += here[first_trainer:]
    return [*oracle_ranks, *sorted(server_ranks), *sorted(trainer_ranks)]


def _levels(memory: dict[int, int]) -> dict[int, int]:
    """The memory of each host, one number for hosts that are alike."""
    levels: dict[int, int] = {}
    level = 0
    for host in sorted(memory, key=lambda host: memory[host], reverse=True):
        if not levels or memory[host] < _ALIKE * level:
            level = memory[host]
        levels[host] = level
    return levels


def _deal_to_gpus(ranks: dict[int, list[int]], gpus: dict[int, int], trainers: int) -> Counter[int]:
    """How many of up to `trainers` trainers each host gets, one a GPU, the host with the most GPUs left first."""
    dealt: Counter[int] = Counter()
    for _ in range(trainers):
        hosts = [host for host in ranks if dealt[host] < min(gpus[host], len(ranks[host]))]
        if not hosts:
            break
        dealt[max(hosts, key=lambda host: gpus[host] - dealt[host])] += 1
    return dealt
