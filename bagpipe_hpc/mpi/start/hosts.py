"""Which ranks share a host, and what the hosts are called: asked of MPI in one place, for a run and for the doctor."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from mpi4py import MPI


@dataclass(frozen=True)
class Hosts:
    """The hosts of a communicator's ranks, the same on every rank.

    Attributes:
        of_rank: of each rank the lowest rank that shares memory with it: equal numbers are one host.
        names: name of each rank's host; hosts of the same name are told apart by their numbers.
    """

    of_rank: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def find(cls, comm: MPI.Comm) -> "Hosts":
        """Ask all ranks where they are. Collective over: `comm`; the caller limits the time."""
        host = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.Get_rank())
        first = host.bcast(comm.Get_rank(), root=0)
        host.Free()
        found = comm.allgather((first, socket.gethostname()))
        numbers = [number for number, _ in found]
        return cls(tuple(numbers), tuple(told_apart(numbers, [name for _, name in found])))


def spans_hosts(comm: MPI.Comm) -> bool:
    """Whether its ranks are on several hosts. Collective over: `comm`; the caller limits the time."""
    return len(set(Hosts.find(comm).of_rank)) > 1


def told_apart(hosts: Sequence[int], names: Sequence[str]) -> list[str]:
    """The name of each rank's host, unlike those of all other hosts; pure.

    Args:
        hosts: number of each rank's host.
        names: what each rank calls its host; of ranks of one host, the last one's name counts.
    """
    name_of = dict(zip(hosts, names, strict=True))
    taken = list(name_of.values())
    return [name_of[host] if taken.count(name_of[host]) == 1 else f"{name_of[host]}#{host}" for host in hosts]
