"""Every rank gets the communicators of its role, each with its own messages, and gives them back."""

import socket

import pytest
from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.mpi.communicators import Communicators

LAYOUTS = [RoleLayout(servers=1, trainers=2), RoleLayout(servers=2, trainers=1)]
IN_ORDER = [Placement.in_rank_order(layout) for layout in LAYOUTS]
MEMBERS = {
    "planning": (Role.ORACLE, Role.TRAINER),
    "store": (Role.SERVER, Role.TRAINER),
    "saving": (Role.SERVER, Role.TRAINER),
    "trainers": (Role.TRAINER,),
    "gathering": (Role.TRAINER,),
    "movers": (Role.TRAINER,),
    "dense": (Role.TRAINER,),
}


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_members_are_the_ranks_of_the_roles_in_order(layout):
    world_rank = MPI.COMM_WORLD.Get_rank()
    with Communicators.create(Placement.in_rank_order(layout)) as comms:
        assert comms.world.Get_size() == 4
        assert comms.world.Get_rank() == world_rank
        assert (comms.role, comms.role_rank) == (layout.role(world_rank), layout.role_rank(world_rank))
        for name, roles in MEMBERS.items():
            comm = getattr(comms, name)
            if comms.role in roles:
                expected = [rank for rank in range(4) if layout.role(rank) in roles]
                assert comm.allgather(world_rank) == expected, name
            else:
                assert comm == MPI.COMM_NULL, name


@pytest.mark.mpi(min_size=4)
def test_messages_of_one_are_not_seen_on_another():
    """The compute thread, the mover and Horovod's thread use the same ranks at the same time."""
    with Communicators.create(IN_ORDER[0]) as comms:
        assert MPI.Comm.Compare(comms.world, MPI.COMM_WORLD) == MPI.CONGRUENT
        if comms.role is Role.TRAINER:
            own = [comms.trainers, comms.movers, comms.dense, *(of_kind.row for of_kind in comms.exchanges)]
            relations = [MPI.Comm.Compare(a, b) for a in own for b in own if a is not b]
            assert relations == [MPI.CONGRUENT] * (len(own) * (len(own) - 1))


@pytest.mark.mpi(min_size=4)
def test_a_rank_is_called_by_its_role():
    with Communicators.create(IN_ORDER[1]) as comms:
        names = ["oracle 0", "server 0", "server 1", "trainer 0"]
        rank = comms.world.Get_rank()
        assert comms.name == f"{names[rank]} (world rank {rank}) on {socket.gethostname()}"


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_host_is_called_by_its_first_rank(layout):
    """All ranks of this machine share memory; on a host, the trainers are numbered."""
    with Communicators.create(Placement.in_rank_order(layout)) as comms:
        assert comms.hosts == (0, 0, 0, 0)
        assert comms.gpu_number == comms.role_rank
        comms.hosts = (0, 0, 0, 3)  # the last rank elsewhere
        assert comms.gpu_number == (0 if comms.world.Get_rank() == 3 else comms.role_rank)


@pytest.mark.mpi(min_size=4)
def test_trainers_that_see_other_gpus_each_take_their_first():
    with Communicators.create(Placement(LAYOUTS[0], (0, 1, 2, 3), gpu_groups=(0, 1, 2, 3))) as comms:
        assert comms.gpu_number == 0


@pytest.mark.mpi(min_size=4)
def test_ranks_take_the_places_that_they_are_given():
    """Oracle, servers and trainers come first in the world whatever numbers the launcher gave them."""
    order = (2, 3, 0, 1)
    launch_rank = MPI.COMM_WORLD.Get_rank()
    with Communicators.create(Placement(LAYOUTS[1], order)) as comms:
        rank = comms.world.Get_rank()
        assert order[rank] == comms.launch_rank == launch_rank
        assert comms.role is LAYOUTS[1].role(rank)
        assert comms.world.allgather(launch_rank) == list(order)
        if comms.store != MPI.COMM_NULL:
            assert comms.store.allgather(launch_rank) == [3, 0, 1]
        assert f"(world rank {rank}, launched as {launch_rank}) on " in comms.name


@pytest.mark.mpi(min_size=4)
def test_all_are_freed_at_the_end_but_not_after_an_error():
    """After an error the others do not come to a collective call."""
    with Communicators.create(IN_ORDER[0]) as comms:
        pass
    assert all(getattr(comms, name) == MPI.COMM_NULL for name in ("world", *MEMBERS))
    with pytest.raises(ZeroDivisionError), Communicators.create(IN_ORDER[0]) as comms:
        raise ZeroDivisionError
    assert comms.world != MPI.COMM_NULL
    comms.__exit__(None, None, None)


@pytest.mark.mpi(min_size=4)
def test_an_mpi_without_threads_is_refused(monkeypatch):
    monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
    with pytest.raises(ConfigError, match="below MPI_THREAD_MULTIPLE"):
        Communicators.create(IN_ORDER[0])
