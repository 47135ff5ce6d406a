"""Who is who: maps a world rank to its role. Pure, so that it is tested without MPI."""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from bagpipe_hpc.errors import ConfigError

SMALLEST_WORLD = 3
"""One oracle, one server and one trainer."""


class Role(Enum):
    """What a rank does."""

    ORACLE = "oracle"
    SERVER = "server"
    TRAINER = "trainer"


@dataclass(frozen=True)
class RoleLayout:
    """One oracle (world rank 0), then the servers, then the trainers.

    Attributes:
        servers: number of embedding servers S, 1 or more.
        trainers: number of trainers T, 1 or more.
    """

    servers: int
    trainers: int

    @classmethod
    def for_world(cls, world_size: int, servers: int = 0, gpus: int = 0) -> "RoleLayout":
        """Split the ranks of a job.

        Args:
            world_size: their number.
            servers: how many of them are servers. 0 makes a trainer for each GPU and servers of the rest, or without
                GPUs 2 servers where at least 2 trainers remain, else 1.
            gpus: how many ranks can have a GPU to themselves.

        Raises:
            ConfigError: the ranks do not suffice for the roles.
        """
        if world_size < SMALLEST_WORLD:
            raise ConfigError(
                f"{world_size} MPI ranks are too few: start at least {SMALLEST_WORLD} "
                "(one oracle, one server, one trainer), or a single one for the reference run"
            )
        default = max(1, world_size - 1 - gpus) if gpus else 2 if world_size >= 5 else 1
        chosen = servers or default
        trainers = world_size - 1 - chosen
        if trainers < 1:
            raise ConfigError(
                f"roles.servers = {servers} leaves no trainer among {world_size} MPI ranks: "
                f"start at least {servers + 2} ranks or set roles.servers to at most {world_size - 2}"
            )
        return cls(chosen, trainers)

    @property
    def world_size(self) -> int:
        """Number of ranks of all roles."""
        return 1 + self.servers + self.trainers

    def role(self, world_rank: int) -> Role:
        """The role of a world rank."""
        if world_rank == 0:
            return Role.ORACLE
        return Role.SERVER if world_rank <= self.servers else Role.TRAINER

    def role_rank(self, world_rank: int) -> int:
        """The rank's number among the ranks of its role, from 0."""
        if world_rank <= self.servers:
            return max(0, world_rank - 1)
        return world_rank - 1 - self.servers

    def name(self, world_rank: int) -> str:
        """A rank as messages call it, such as `trainer 1 (world rank 4)`."""
        return f"{self.role(world_rank).value} {self.role_rank(world_rank)} (world rank {world_rank})"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The `name` of every world rank."""
        return tuple(self.name(rank) for rank in range(self.world_size))

    def world_rank(self, role: Role, role_rank: int) -> int:
        """The inverse of `role` and `role_rank`."""
        first = {Role.ORACLE: 0, Role.SERVER: 1, Role.TRAINER: 1 + self.servers}
        return first[role] + role_rank
