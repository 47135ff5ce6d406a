"""Which way rows take between a trainer and a server: memory that both share, or transfers through MPI. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.errors import ConfigError


class _Sharing(NamedTuple):
    """Servers and trainers of a host that have rows in memory together: their world ranks, and the servers' numbers."""

    ranks: tuple[int, ...]
    servers: tuple[int, ...]


@dataclass(frozen=True)
class RowRoutes:
    """For every pair of trainer and server: near (plain loads and stores) or far (transfers through MPI).

    Attributes:
        layout: who is who.
        hosts: number of the host of each world rank; equal numbers are one host.
        loads: whether servers on a trainer's own host are near; without it all are far.
        in_memory: whether servers keep their rows in memory that others may share.
    """

    layout: RoleLayout
    hosts: tuple[int, ...]
    loads: bool
    in_memory: bool = True

    @classmethod
    def choose(cls, layout: RoleLayout, hosts: Sequence[int], same_host: str, *, in_memory: bool = True) -> "RowRoutes":
        """Routes as `roles.same_host` wants them; where rows are not in memory, all are far.

        Raises:
            ConfigError: only loads are wanted, and a server is on another host than a trainer, or on disk.
        """
        if not in_memory and same_host == "loads":
            raise ConfigError(
                "roles.same_host = 'loads': with tables.memory_gb the servers' rows lie on disk, where no trainer can "
                "load them from memory; use roles.same_host=auto, or a larger tables.memory_gb"
            )
        routes = cls(layout, tuple(hosts), loads=in_memory and same_host != "transfers", in_memory=in_memory)
        if same_host == "loads":
            for trainer in range(layout.trainers):
                if far := routes.far_servers(layout.world_rank(Role.TRAINER, trainer)):
                    raise ConfigError(
                        f"roles.same_host = 'loads': server {far[0]} is not on the host of trainer {trainer}, which "
                        "cannot load its rows from memory; place all ranks on one host, or use roles.same_host=auto"
                    )
        return routes

    def sharers(self, world_rank: int) -> tuple[int, ...]:
        """Ranks that have rows in memory together with a rank, itself among them, in order.

        All servers and trainers of a host where both are; any other rank is alone.
        """
        if world_rank and (sharing := self._sharing.get(self.hosts[world_rank])):
            return sharing.ranks
        return (world_rank,)

    def servers_shared(self, world_rank: int) -> tuple[int, ...]:
        """Servers among the sharers of a rank, in the order of their numbers."""
        if world_rank and (sharing := self._sharing.get(self.hosts[world_rank])):
            return sharing.servers
        is_server = self.layout.role(world_rank) is Role.SERVER
        return (self.layout.role_rank(world_rank),) if is_server else ()

    def near_servers(self, world_rank: int) -> tuple[int, ...]:
        """Servers whose rows a rank reaches in memory."""
        return self.servers_shared(world_rank) if self.loads else ()

    def far_servers(self, world_rank: int) -> tuple[int, ...]:
        """Servers whose rows a rank reaches through MPI."""
        near = self.near_servers(world_rank)
        if len(near) == self.layout.servers:
            return ()
        return tuple(sorted(set(range(self.layout.servers)).difference(near)))

    def far_trainers(self, server: int) -> tuple[int, ...]:
        """Trainers that reach a server's rows through MPI."""
        near = set(self.sharers(self.layout.world_rank(Role.SERVER, server)))
        ranks = ((trainer, self.layout.world_rank(Role.TRAINER, trainer)) for trainer in range(self.layout.trainers))
        return tuple(trainer for trainer, rank in ranks if rank not in near)

    @property
    def any_far(self) -> bool:
        """Whether any rows go through MPI."""
        ranks = (self.layout.world_rank(Role.TRAINER, trainer) for trainer in range(self.layout.trainers))
        return any(len(self.near_servers(rank)) < self.layout.servers for rank in ranks)

    @cached_property
    def _sharing(self) -> "dict[int, _Sharing]":
        """Who shares rows on each host where servers and trainers are; found once, for worlds of many ranks."""
        found: dict[int, _Sharing] = {}
        if not self.loads:
            return found
        here: dict[int, list[int]] = defaultdict(list)
        for rank, host in enumerate(self.hosts[1:], 1):  # all but the oracle
            here[host].append(rank)
        for host, ranks in here.items():
            servers = tuple(self.layout.role_rank(rank) for rank in ranks if self.layout.role(rank) is Role.SERVER)
            if 0 < len(servers) < len(ranks):
                found[host] = _Sharing(tuple(ranks), servers)
        return found
