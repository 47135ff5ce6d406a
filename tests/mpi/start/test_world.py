"""What a job leaves on its host when it is ended, by force or in order."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.mpi.start import world
from bagpipe_hpc.mpi.start.world import remove_shared_files
from tests.ranks import ROOT, rank_environment

SHARED = ("/dev/shm/mpich_shm_", "/dev/shm/sm_segment.")
ALONE = """
from bagpipe_hpc.mpi.start.running import mpi_running
with mpi_running(60.0, 60.0):
    print(open("/proc/self/maps").read())
"""


def shared_names(maps: str) -> list[str]:
    """Names of the files in /dev/shm by which MPI shares memory with a process that has these maps."""
    mapped = (line.split(maxsplit=5) for line in maps.splitlines())
    names = {fields[5] for fields in mapped if len(fields) == 6}
    return [name for name in names if name.startswith(SHARED) and not name.endswith("(deleted)")]


@pytest.mark.mpi(min_size=3)
def test_nothing_is_left_in_shared_memory_and_the_ranks_still_share_it(comm):
    comm.Barrier()
    remove_shared_files()
    comm.Barrier()
    assert shared_names(Path("/proc/self/maps").read_text()) == []
    rank, size = comm.Get_rank(), comm.Get_size()
    for length in (10, 1_000_000):
        received = np.empty(length)
        comm.Sendrecv(np.full(length, float(rank)), (rank + 1) % size, recvbuf=received, source=(rank - 1) % size)
        assert (received == (rank - 1) % size).all()


@pytest.mark.mpi(min_size=1)
def test_files_of_any_name_may_be_mapped(tmp_path, monkeypatch):
    shared = Path(f"{SHARED[0]}test_{os.getpid()}")
    shared.touch()
    try:
        maps = tmp_path / "maps"
        maps.write_bytes(
            b"7f00-7f01 r--p 0 fe:00 1    /home/\xff/libtorch.so\n7f02-7f03 rw-s 0 fe:00 2    " + bytes(shared)
        )
        monkeypatch.setattr(world, "_MAPPED", maps)
        remove_shared_files()
        assert not shared.exists()
    finally:
        shared.unlink(missing_ok=True)


@pytest.mark.mpi(min_size=2)
def test_a_process_without_a_launcher_leaves_nothing(comm):
    """Open MPI leaves it to the launcher."""
    if comm.Get_rank() == 0:
        process = [sys.executable, "-c", ALONE]
        alone = subprocess.run(process, capture_output=True, text=True, cwd=ROOT, env=rank_environment(), check=True)
        assert not [name for name in shared_names(alone.stdout) if Path(name).exists()]
