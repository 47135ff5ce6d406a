"""What a job leaves on its host when it is ended by force."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.mpi.start.world import remove_shared_files


def shared_names() -> list[str]:
    """Names of the files in /dev/shm by which MPICH shares memory with this process."""
    mapped = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    names = {fields[5] for fields in mapped if len(fields) == 6}
    return [name for name in names if name.startswith("/dev/shm/mpich_shm_") and not name.endswith("(deleted)")]


@pytest.mark.mpi(min_size=3)
def test_nothing_is_left_in_shared_memory_and_the_ranks_still_share_it(comm):
    comm.Barrier()
    remove_shared_files()
    comm.Barrier()
    assert shared_names() == []
    rank, size = comm.Get_rank(), comm.Get_size()
    for length in (10, 1_000_000):
        received = np.empty(length)
        comm.Sendrecv(np.full(length, float(rank)), (rank + 1) % size, recvbuf=received, source=(rank - 1) % size)
        assert (received == (rank - 1) % size).all()
