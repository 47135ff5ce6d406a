"""The hosts of a job: which ranks share one, what each offers, and words between their first ranks."""

import os
from types import TracebackType
from typing import TypeVar

from mpi4py import MPI

from bagpipe_hpc.mpi.start.hosts import Hosts
from bagpipe_hpc.mpi.start.roll_call import call_roll
from bagpipe_hpc.mpi.time_limit import TimeLimit

_THREAD_LEVELS = {
    MPI.THREAD_SINGLE: "single",
    MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized",
    MPI.THREAD_MULTIPLE: "multiple",
}

_Value = TypeVar("_Value")


class HostWorld:
    """This rank's place among hosts; a context manager. Collective over: all ranks, as are its methods.

    Before each call that blocks, all ranks report to rank 0, so that one that does not is named. The calls themselves
    end the job where they take too long.

    Raises:
        WaitTimeoutError: a rank did not come, here or in a method.

    Attributes:
        size: ranks of the job.
        host: name of this host; hosts of the same name are told apart by a number.
        host_names: of all hosts, in the order of their first ranks.
        ranks_on_host: ranks here.
        is_first_of_host: whether this rank speaks for its host.
        leaders: communicator of the first rank of each host; None elsewhere.
    """

    def __init__(self, timeout_s: float) -> None:
        self._world = MPI.COMM_WORLD
        self._timeout_s = timeout_s
        self.size: int = self._world.Get_size()
        self._host_of_rank: list[str] = []
        self.meet("having started")
        with self._limit("the hosts to form groups"):
            hosts, rank = Hosts.find(self._world), self._world.Get_rank()
            self._host = self._world.Split(hosts.of_rank[rank], rank)
            self.ranks_on_host: int = self._host.Get_size()
            self.is_first_of_host: bool = self._host.Get_rank() == 0
            comm = self._world.Split(0 if self.is_first_of_host else MPI.UNDEFINED, rank)
            self.leaders: MPI.Intracomm | None = MPI.Intracomm(comm) if self.is_first_of_host else None
        self.host_names: list[str] = [hosts.names[first] for first in sorted(set(hosts.of_rank))]
        self.host: str = hosts.names[rank]
        self._host_of_rank = list(hosts.names)

    @property
    def cores(self) -> int:
        """Cores that the ranks of this host may use, together."""
        return len(set().union(*self.gather_here(os.sched_getaffinity(0))))

    @property
    def library(self) -> str:
        """MPI's name and version."""
        return MPI.Get_library_version().split("\n")[0].rstrip("\0").strip()

    @property
    def thread_level(self) -> str:
        """What MPI was started with."""
        return _THREAD_LEVELS[MPI.Query_thread()]

    def meet(self, what: str) -> None:
        """A barrier of all ranks; see `call_roll`."""
        call_roll(self._world, what, self._timeout_s, self._host_of_rank)

    def _limit(self, what: str) -> TimeLimit:
        return TimeLimit(what, self._timeout_s)

    def gather_here(self, value: _Value) -> list[_Value]:
        """The values of all ranks of this host."""
        with self._limit(f"the ranks on {self.host}"):
            return self._host.allgather(value)

    def gather_hosts(self, value: _Value) -> list[_Value] | None:
        """The values of the first ranks of all hosts, on rank 0."""
        self.meet("having looked around")
        with self._limit("all hosts to say what they are"):
            return self.leaders.gather(value, root=0) if self.leaders else None

    def share(self, value: _Value) -> _Value:
        """The value of rank 0, on every rank."""
        self.meet("having measured the links")
        with self._limit("rank 0 to say what it found"):
            shared: _Value = self._world.bcast(value, root=0)
        return shared

    def close(self) -> None:
        """Free the communicators."""
        with self._limit("the hosts to end"):
            if self.leaders:
                self.leaders.Free()
            self._host.Free()

    def __enter__(self) -> "HostWorld":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # after an error the other ranks do not come
            self.close()
