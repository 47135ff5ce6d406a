"""Where the ranks of the job are, before they have roles: who shares a host, and what each host has."""

import socket

from mpi4py import MPI

from bagpipe_hpc.cluster.rank_facts import RankFacts, rank_places
from bagpipe_hpc.cluster.role_placement import RankPlace
from bagpipe_hpc.mpi.start.roll_call import call_roll
from bagpipe_hpc.mpi.start.world import remove_shared_files
from bagpipe_hpc.mpi.time_limit import TimeLimit


def find_places(timeout_s: float, *, use_gpus: bool) -> tuple[list[RankPlace], list[str]]:
    """Ask all ranks where they are. Collective over: all ranks of the job.

    Args:
        timeout_s: longest wait for a rank.
        use_gpus: whether the run wants any.

    Returns:
        The place of each rank and the name of its host, in the launcher's order, the same on every rank; hosts of the
        same name are told apart by a number.

    Raises:
        WaitTimeoutError: a rank did not come.
    """
    call_roll(MPI.COMM_WORLD, "having started", timeout_s)
    remove_shared_files()
    with TimeLimit("all ranks to say where they are", timeout_s):
        world = MPI.COMM_WORLD.Dup()
        host = world.Split_type(MPI.COMM_TYPE_SHARED, world.Get_rank())
        first = host.bcast(world.Get_rank(), root=0)
        host.Free()
        found = world.allgather((first, socket.gethostname(), RankFacts.here()))
        world.Free()
    hosts = [number for number, *_ in found]
    places = rank_places([facts for *_, facts in found], hosts, use_gpus=use_gpus)
    return places, _told_apart({number: name for number, name, _ in found}, hosts)


def _told_apart(names: dict[int, str], hosts: list[int]) -> list[str]:
    """The name of each rank's host."""
    taken = list(names.values())
    return [names[host] if taken.count(names[host]) == 1 else f"{names[host]}#{host}" for host in hosts]
