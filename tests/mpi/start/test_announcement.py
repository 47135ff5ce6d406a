"""The oracle's preparations: all ranks learn their outcome or failure, and a silent oracle is noticed."""

import time

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import DataError, WaitTimeoutError
from bagpipe_hpc.mpi.start.announcement import PreparationError, announce, await_announcement


def is_oracle(comm: MPI.Comm) -> bool:
    return comm.Get_rank() == 0


@pytest.mark.mpi(min_size=3)
def test_all_ranks_get_the_outcome(comm):
    for number in range(3):
        outcome = {"number": number, "offsets": np.arange(number)}
        if is_oracle(comm):
            got = announce(comm, lambda outcome=outcome: outcome, 30.0)
        else:
            got = await_announcement(comm, 30.0)
        assert got["number"] == number
        np.testing.assert_array_equal(got["offsets"], np.arange(number))


@pytest.mark.mpi(min_size=3)
def test_a_failure_reaches_all_ranks(comm):
    """With the oracle's words, for any rank may be the one that speaks; the next announcement is not disturbed."""

    def fail() -> None:
        raise DataError("train-00003.h5 is damaged")

    if is_oracle(comm):
        with pytest.raises(DataError, match=r"train-00003\.h5 is damaged"):
            announce(comm, fail, 30.0)
        announce(comm, lambda: "better data", 30.0)
    else:
        with pytest.raises(PreparationError, match=r"train-00003\.h5 is damaged"):
            await_announcement(comm, 30.0)
        assert await_announcement(comm, 30.0) == "better data"


@pytest.mark.mpi(min_size=3)
def test_heartbeats_keep_the_others_waiting(comm):
    """Preparations may take longer than the limit, which is one of silence; here twice as long."""
    if is_oracle(comm):
        announce(comm, lambda: time.sleep(2.0), 1.0)
    else:
        start = time.monotonic()
        assert await_announcement(comm, 1.0) is None
        assert time.monotonic() - start > 1.0


@pytest.mark.mpi(min_size=3)
def test_silence_times_out(comm):
    if not is_oracle(comm):
        with pytest.raises(WaitTimeoutError, match=r"waited \S+ s for the oracle to prepare the run"):
            await_announcement(comm, 0.05)
    comm.Barrier()
