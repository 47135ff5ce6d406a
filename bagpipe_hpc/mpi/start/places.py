"""Where the ranks of the job are, before they have roles: who shares a host, and what each host has."""

from mpi4py import MPI

from bagpipe_hpc.cluster.rank_facts import RankFacts, rank_places
from bagpipe_hpc.cluster.role_placement import RankPlace
from bagpipe_hpc.mpi.start.hosts import Hosts
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
        hosts = Hosts.find(world)
        facts = world.allgather(RankFacts.here())
        world.Free()
    return rank_places(facts, hosts.of_rank, use_gpus=use_gpus), list(hosts.names)
