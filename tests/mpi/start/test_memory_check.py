"""Tables that do not fit a host are refused before they are allocated, on all ranks alike."""

from collections.abc import Sequence

import pytest
from mpi4py import MPI

from bagpipe_hpc.cluster.server_memory import Need
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.mpi.start import memory_check
from bagpipe_hpc.mpi.start.memory_check import require_memory

FREE_BYTES = 10 * 10**9


def require(need: Need, hosts: Sequence[int] = (0, 0)) -> None:
    """See that what two ranks allocate fits their hosts, by default one host."""
    require_memory(MPI.COMM_WORLD, need, hosts)


@pytest.fixture
def small_host(monkeypatch):
    """A host with 10 GB free, half of it in /dev/shm, as rank 0 sees it, and a little more as the others do."""
    free = FREE_BYTES + MPI.COMM_WORLD.Get_rank()
    monkeypatch.setattr(memory_check, "free_bytes", lambda: free)
    monkeypatch.setattr(memory_check, "free_shared_bytes", lambda: free // 2)
    monkeypatch.setattr(memory_check.socket, "gethostname", lambda: "node7")


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("small_host")
def test_what_fits_is_allowed():
    rank = MPI.COMM_WORLD.Get_rank()
    require(Need(0, 0))
    require(Need(0, FREE_BYTES // 2))
    require(Need(0, FREE_BYTES if rank == 1 else 0))


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("small_host")
def test_the_servers_of_a_host_share_its_memory():
    """Each would fit alone; the error names the host and the numbers on both ranks."""
    expected = (
        r" need 12\.0 GB on node7 \(2 ranks\), which has 10\.0 GB free: the tables take 8\.0 GB, 4\.0 GB on each of 2"
    )
    with pytest.raises(CapacityError, match=expected):
        require(Need(4 * 10**9, 2 * 10**9))


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("small_host")
def test_tables_must_fit_the_shared_memory():
    """6 GB of tables fit the memory of 10 GB, but not the half of it that ranks may share."""
    require(Need(2 * 10**9, 2 * 10**9))
    expected = r"tables need 6\.0 GB of shared memory on node7, where /dev/shm has 5\.0 GB free \(mount"
    with pytest.raises(CapacityError, match=expected):
        require(Need(3 * 10**9, 10**9))


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("small_host")
def test_tables_count_as_memory_too():
    with pytest.raises(
        CapacityError, match=r"tables, row caches, dense models, planner and evaluation need 12\.0 GB on node7"
    ):
        require(Need(2 * 10**9, 4 * 10**9))


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("small_host")
def test_a_rank_without_rows_learns_it_too():
    with pytest.raises(CapacityError, match=r"need 10\.0 GB on node7 \(1 rank\)"):
        require(Need(0, FREE_BYTES + 1 if MPI.COMM_WORLD.Get_rank() == 1 else 0))


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("small_host")
def test_hosts_are_counted_apart(monkeypatch):
    rank = MPI.COMM_WORLD.Get_rank()
    monkeypatch.setattr(memory_check.socket, "gethostname", lambda: f"node{rank}")
    require(Need(0, 6 * 10**9), hosts=(0, 1))
    with pytest.raises(CapacityError, match="on node1"):
        require(Need(0, 11 * 10**9 if rank == 1 else 6 * 10**9), hosts=(0, 1))


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("small_host")
def test_hosts_of_the_same_name_have_memory_each():
    """As everywhere else, it is MPI that says who shares a host, and the name has a number then."""
    require(Need(0, 6 * 10**9), hosts=(0, 1))
    with pytest.raises(CapacityError, match="on node7#1 "):
        require(Need(0, 11 * 10**9 if MPI.COMM_WORLD.Get_rank() == 1 else 6 * 10**9), hosts=(0, 1))


@pytest.mark.mpi(min_size=2)
def test_this_host_has_some_memory_and_not_all_of_it():
    require(Need(1, 1))
    with pytest.raises(CapacityError):
        require(Need(0, 10**18))
    with pytest.raises(CapacityError):
        require(Need(10**18, 0))
