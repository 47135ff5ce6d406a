"""The communicators of a job: the world is put in order and split once; everybody else gets them as arguments."""

import socket
from dataclasses import dataclass
from types import TracebackType

from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.mpi.rows.grid_comms import GridComms
from bagpipe_hpc.mpi.start.hosts import Hosts
from bagpipe_hpc.mpi.start.roll_call import call_roll
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.plan.exchange import Kind
from bagpipe_hpc.plan.exchange_grid import DIRECT, choose_grid

ORACLE_RANK = 0
"""Rank of the oracle in `world` and in `planning`."""

_TIMEOUT_S = 60.0
"""As `train.timeout_s` has it where nothing else is given."""


@dataclass
class Communicators:
    """One rank's communicators, a context manager that frees them in reverse order.

    Attributes:
        layout: who is who.
        role: what this rank does.
        role_rank: its number among its role's ranks.
        launch_rank: its number for the launcher, which differs from its world rank where roles are placed.
        world: all ranks: the oracle, the servers, the trainers.
        planning: the oracle (rank 0) and the trainers (1 + trainer); null on servers.
        store: servers first, then trainers; null on the oracle.
        saving: the same ranks, for a thread of the first trainer's, which collects the files of a checkpoint.
        trainers: trainers only, for reductions in the compute thread; null elsewhere. So are the next ones.
        gathering: the trainers again, for the second stage of a reduction.
        exchanges: the trainers again, for the rows that they exchange, for each kind; none elsewhere.
        movers: the trainers' movers, used by their second threads.
        dense: the trainers again, for sums of dense gradients, which split it, or Horovod's background thread.
        hosts: of each world rank the lowest world rank that shares memory with it: equal numbers are one host.
        gpu_groups: of each world rank a number; ranks of one host with equal numbers see the same GPUs.
        timeout_s: longest wait for the other ranks to make communicators, or to free them.
    """

    layout: RoleLayout
    role: Role
    role_rank: int
    launch_rank: int
    world: MPI.Intracomm
    planning: MPI.Comm
    store: MPI.Comm
    saving: MPI.Comm
    trainers: MPI.Comm
    gathering: MPI.Comm
    exchanges: tuple[GridComms, ...]
    movers: MPI.Comm
    dense: MPI.Comm
    hosts: tuple[int, ...]
    gpu_groups: tuple[int, ...]
    timeout_s: float

    @property
    def servers_here(self) -> list[int]:
        """Numbers of the servers on this rank's host."""
        here = self.hosts[self.world.Get_rank()]
        servers = range(self.layout.servers)
        return [server for server in servers if self.hosts[self.layout.world_rank(Role.SERVER, server)] == here]

    @classmethod
    def create(cls, placement: Placement, timeout_s: float = _TIMEOUT_S, exchange: str = DIRECT) -> "Communicators":
        """Put the world in the order of a placement, and split it by role. Collective over: all ranks.

        Args:
            placement: who is who; the same on every rank.
            timeout_s: see `Communicators`; where a call takes longer, the job is ended.
            exchange: how trainers exchange rows (`cache.exchange`).

        Raises:
            ConfigError: MPI was initialised without support for several threads.
        """
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise ConfigError(
                f"MPI gives thread level {MPI.Query_thread()}, below MPI_THREAD_MULTIPLE ({MPI.THREAD_MULTIPLE}): "
                "use an MPI built with full thread support"
            )
        with TimeLimit("all ranks to form the groups of their roles", timeout_s):
            return cls._create(placement, timeout_s, exchange)

    @classmethod
    def _create(cls, placement: Placement, timeout_s: float, exchange: str) -> "Communicators":
        launch_rank = MPI.COMM_WORLD.Get_rank()
        rank = placement.order.index(launch_rank)
        world = MPI.Intracomm(MPI.COMM_WORLD.Split(0, rank))
        layout = placement.layout
        role = layout.role(rank)

        def split(*roles: Role) -> MPI.Comm:
            return world.Split(0 if role in roles else MPI.UNDEFINED, rank)

        trainers, grid = split(Role.TRAINER), choose_grid(exchange, layout.trainers).grid
        return cls(
            layout=layout,
            role=role,
            role_rank=layout.role_rank(rank),
            launch_rank=launch_rank,
            world=world,
            planning=split(Role.ORACLE, Role.TRAINER),
            store=split(Role.SERVER, Role.TRAINER),
            saving=split(Role.SERVER, Role.TRAINER),
            trainers=trainers,
            gathering=split(Role.TRAINER),
            exchanges=tuple(GridComms.split(trainers, grid) for _ in Kind) if role is Role.TRAINER else (),
            movers=split(Role.TRAINER),
            dense=split(Role.TRAINER),
            hosts=Hosts.find(world).of_rank,
            gpu_groups=placement.gpu_groups or (0,) * layout.world_size,
            timeout_s=timeout_s,
        )

    @property
    def gpu_number(self) -> int:
        """This rank's number among the ranks of its role on its host that see the same GPUs."""
        rank = self.world.Get_rank()
        earlier = range(rank - self.role_rank, rank)  # those of its role; they have successive world ranks
        return sum(self._gpus_of(other) == self._gpus_of(rank) for other in earlier)

    def _gpus_of(self, world_rank: int) -> tuple[int, int]:
        return self.hosts[world_rank], self.gpu_groups[world_rank]

    @property
    def name(self) -> str:
        """This rank as messages call it, such as `trainer 1 (world rank 4) on node7`.

        Where the launcher has another number for it, that follows: the launcher's messages say it.
        """
        rank = self.world.Get_rank()
        launched = "" if self.launch_rank == rank else f", launched as {self.launch_rank}"
        return f"{self.layout.name(rank).removesuffix(')')}{launched}) on {self.host}"

    @property
    def host(self) -> str:
        """Name of the host that this rank runs on."""
        return socket.gethostname()

    def __enter__(self) -> "Communicators":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free all communicators. Collective over: all ranks; after an error the job is aborted instead.

        Raises:
            WaitTimeoutError: a rank did not come.
        """
        if error is not None:
            return
        self.meet("being about to end", self.timeout_s)
        with TimeLimit("all ranks to leave the groups of their roles", self.timeout_s):
            for comm in (
                self.dense,
                self.movers,
                *(comm for of_kind in reversed(self.exchanges) for comm in reversed(of_kind)),
                self.gathering,
                self.trainers,
                self.saving,
                self.store,
                self.planning,
                self.world,
            ):
                if comm != MPI.COMM_NULL:
                    comm.Free()

    def meet(self, what: str, timeout_s: float) -> None:
        """A barrier of all ranks that names those which do not come; see `call_roll`. Collective over: `world`."""
        call_roll(self.world, what, timeout_s, names=self.layout.names)
