"""The tests of this folder run on as many ranks as they ask for, and these ranks reach each other."""

import pytest
from mpi4py import MPI


@pytest.mark.mpi(min_size=2)
def test_two_ranks_run_this():
    assert MPI.COMM_WORLD.allgather(MPI.COMM_WORLD.Get_rank()) == [0, 1]


@pytest.mark.mpi(min_size=3)
def test_three_ranks_run_this():
    assert MPI.COMM_WORLD.allgather(MPI.COMM_WORLD.Get_rank()) == [0, 1, 2]


@pytest.mark.mpi(min_size=2)
def test_threads_may_all_call_mpi():
    assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
